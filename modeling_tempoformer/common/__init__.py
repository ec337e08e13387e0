"""Modules for all packages: files, progress, the command line, figures, pages. They know no room of the plugin."""
