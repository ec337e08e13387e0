"""The page of words."""
