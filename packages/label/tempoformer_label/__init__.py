"""Labels: which posts to label, and a page to label them."""
