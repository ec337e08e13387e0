"""The subcommands of `tempoformer` for posts that arrive: serve, score, policy, drift, forget."""
