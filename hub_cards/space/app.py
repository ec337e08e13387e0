"""Timelines of posts with the predictions of a model. The app itself is in `modeling_tempoformer/space/`."""

from modeling_tempoformer.space.app import run_app


run_app("{{ model }}", public=True)
