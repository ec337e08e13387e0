"""An app in the browser that shows posts as timelines with a model's predictions, here or as a Space of the Hub."""
