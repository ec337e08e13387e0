"""HTML pages of timelines, and the parts that all pages share."""

from .page import check_view
from .timelines import show


__all__ = ["check_view", "show"]
