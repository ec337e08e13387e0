"""HTML pages of timelines, and what every page is made of."""

from .page import check_view
from .timelines import show


__all__ = ["check_view", "show"]
