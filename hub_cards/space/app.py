"""Shows timelines of posts with the predictions of a model. The app is in `modeling_tempoformer/serving/`."""

from modeling_tempoformer.serving.space_app import run_app


run_app("{{ model }}", public=True)
