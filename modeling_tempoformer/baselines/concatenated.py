"""A stock encoder on the post and its history in one sequence."""

from dataclasses import dataclass

from .text_classification import SequenceBaseline


@dataclass(kw_only=True)
class Method(SequenceBaseline):
    """The post after its history."""
