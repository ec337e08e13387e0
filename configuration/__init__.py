"""Model presets and run recipes, as data of the package."""
