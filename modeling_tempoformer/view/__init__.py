"""HTML pages of timelines, and the parts that all pages share."""

from ..common.pages import check_view
from .timelines import show


__all__ = ["check_view", "show"]
