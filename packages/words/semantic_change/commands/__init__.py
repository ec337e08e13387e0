"""The subcommands of `tempoformer` about words."""
