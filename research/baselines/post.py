"""Classifies the post alone with a stock sequence classifier."""

from modeling_tempoformer.posts.arguments import DataTrainingArguments

from .concatenated import Method as Concatenated


class Method(Concatenated):
    """Classifies a post alone, whatever the window of the streams is."""

    def window_of(self, data: DataTrainingArguments) -> int:
        return 1
