"""What all packages share: files, progress, the command line, figures and pages. It knows no room of the plugin."""
