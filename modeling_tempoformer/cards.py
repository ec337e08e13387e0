"""Model cards from the templates in `hub_cards/`."""

from importlib.resources import files
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from .configuration_tempoformer import TempoFormerConfig


def write_card(
    folder: str | Path,
    config: TempoFormerConfig,
    results: dict[str, float],
    base_model: str | None = None,
    repo_id: str | None = None,
):
    """
    Writes `README.md` into `folder`.

    Args:
        folder (`str` or `Path`): The saved model.
        config ([`TempoFormerConfig`]): Of the model.
        results (`dict[str, float]`): Scores to show, by name.
        base_model (`str`, *optional*): Hub id or folder of the encoder that it was fine-tuned from.
        repo_id (`str`, *optional*): Where the model is pushed to; the folder's name if omitted.
    """
    folder = Path(folder)
    repo_id = repo_id or folder.resolve().name
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=["tempoformer", "change-detection"],
        # A folder of this machine means nothing on the Hub.
        base_model=None if base_model is None or Path(base_model).exists() else base_model,
    )
    card = ModelCard.from_template(
        data,
        template_str=files("modeling_tempoformer.hub_cards").joinpath("tempoformer.md").read_text(encoding="utf-8"),
        model_name=repo_id.split("/")[-1],
        repo_id=repo_id,
        encoder_type=config.encoder_config.model_type,
        labels=[config.id2label[index] for index in range(config.num_labels)],
        window=config.window,
        stream_attention=config.stream_attention,
        results=results,
    )
    card.save(folder / "README.md")
