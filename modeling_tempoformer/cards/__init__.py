"""Model cards."""
