"""Modules for all packages: files, progress, the command line, figures and pages. They know no room of it."""
