"""A stock sequence classifier on the post alone."""

from modeling_tempoformer.data.arguments import DataTrainingArguments

from .concatenated import Method as Concatenated


class Method(Concatenated):
    """The post alone, whatever the window of the streams is."""

    def window_of(self, data: DataTrainingArguments) -> int:
        return 1
