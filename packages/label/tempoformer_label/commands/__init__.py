"""The subcommands of `tempoformer` for labelling: select and label."""
