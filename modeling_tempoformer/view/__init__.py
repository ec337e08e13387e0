"""Pages that a person looks at."""

from .notebook import show
from .page import check_view


__all__ = ["check_view", "show"]
