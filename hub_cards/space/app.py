"""Shows timelines of posts with the predictions of a model. The app is in `space_app.py`."""

from space_app import run_app


run_app("{{ model }}", public=True)
