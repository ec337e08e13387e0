"""A stock encoder on the post alone."""

from dataclasses import dataclass

from ..data.arguments import DataTrainingArguments
from .text_classification import SequenceBaseline


@dataclass(kw_only=True)
class Method(SequenceBaseline):
    """The post alone, whatever the window of the streams is."""

    def window_of(self, data: DataTrainingArguments) -> int:
        return 1
