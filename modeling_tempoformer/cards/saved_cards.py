"""A model that is saved or pushed by itself, without a Trainer, has a card of `hub_cards/` too."""

from functools import wraps
from pathlib import Path

from huggingface_hub import ModelCard
from transformers import PreTrainedModel

from .model_cards import write_card


# What Transformers writes into the card of a repository that has none.
STOCK_CARD = "This model card has been automatically generated."


def give_card(model_class: type[PreTrainedModel]):
    """
    Lets a class's `save_pretrained` and `push_to_hub` write a card where there is none.

    This is done from outside because the class's own module travels to the Hub, where the templates are not.
    """
    save, upload = model_class.save_pretrained, model_class._upload_modified_files

    @wraps(save)
    def save_pretrained(self, save_directory, is_main_process: bool = True, **kwargs):
        save(self, save_directory, is_main_process=is_main_process, **kwargs)
        folder = Path(save_directory)
        if is_main_process and folder.is_dir() and not (folder / "README.md").exists():
            write_card(folder, self.config)

    @wraps(upload)
    def upload_modified_files(self, working_dir, repo_id, *args, **kwargs):
        path = Path(working_dir, "README.md")
        card = ModelCard.load(path)
        if STOCK_CARD in card.text:
            write_card(working_dir, self.config, repo_id=repo_id, tags=card.data.tags or ())
        return upload(self, working_dir, repo_id, *args, **kwargs)

    model_class.save_pretrained = save_pretrained
    model_class._upload_modified_files = upload_modified_files
