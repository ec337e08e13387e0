"""Pages that a person looks at."""

from .page import check_view
from .timelines import show


__all__ = ["check_view", "show"]
