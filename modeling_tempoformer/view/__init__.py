"""HTML pages of timelines and of words."""

from .page import check_view
from .timelines import show


__all__ = ["check_view", "show"]
