"""The subcommands of `tempoformer`, a module with a `main` for each; the scripts of a checkout call the same."""
