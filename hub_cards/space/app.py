"""Timelines of posts with the predictions of a model. The app itself is in `modeling_tempoformer/serving/`."""

from modeling_tempoformer.serving.space_app import run_app


run_app("{{ model }}", public=True)
