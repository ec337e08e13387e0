"""The subcommands of `tempoformer` for labelling: select, label and more_labels."""
