"""Pages inside a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from .page import check_view


@dataclass(frozen=True)
class NotebookPage:
    """
    A page that a notebook shows in a frame of its own, so that neither changes the other.

    Attributes:
        html (`str`): The page.
        height (`int`): Of the frame, in pixels.
    """

    html: str
    height: int

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="Timelines" srcdoc="{escape(self.html)}" sandbox="allow-scripts" width="100%" '
            f'height="{self.height}" style="border: 0"></iframe>'
        )


def show(
    explanation: Sequence[dict] | Sequence[Sequence[dict]], title: str = "Timelines", height: int = 900
) -> NotebookPage:
    """
    The page of timelines in a notebook: `show(pipe.explain(timeline))`.

    Args:
        explanation: What `explain` of the pipeline returns for a timeline, or for a list of them. Each post may have
            `actual` too, the name of its class.
        title (`str`, *optional*, defaults to `"Timelines"`): Heading of the page.
        height (`int`, *optional*, defaults to 900): Height in pixels.

    Returns:
        [`NotebookPage`]: Jupyter shows it; `html` is the page. Raises a `ValueError` without the extra `view`, and if
        there is no post.
    """
    check_view()
    from .timeline_page import timeline_page

    timelines = [explanation] if explanation and isinstance(explanation[0], dict) else explanation
    posts = [post for timeline in timelines for post in timeline]
    if not posts:
        raise ValueError("There is no post to show.")
    named = [{"id": f"Timeline {number}", "posts": posts} for number, posts in enumerate(timelines, 1)]
    return NotebookPage(timeline_page(named, list(posts[0]["probabilities"]), title=title), height)
