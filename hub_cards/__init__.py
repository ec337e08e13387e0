"""Model-card templates, as data of the package."""
