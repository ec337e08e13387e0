"""
Renders pages that a person opens from disk: one HTML file with its style, script, charts and data, which makes no
request to any server. Charts need the extra `view`.
"""

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .files import written_whole


if TYPE_CHECKING:
    import altair

FOLDER = Path(__file__).parent
LIBRARIES = {"altair": "altair", "vl_convert": "vl-convert-python"}
# Characters that are escaped, so that a post cannot end its script element or begin a comment in it.
ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
# The colours of classes and groups, in order. page.css defines them for light and dark screens and for paper.
COLOURS = [f"var(--group-{number})" for number in range(8)]
# The entries of a legend are in a column if the chart is narrow.
LEGENDS = {"top": {"anchor": "start", "direction": {"signal": "width < 480 ? 'vertical' : 'horizontal'"}}}
# Charts take all colours from the page, so that dark screens and paper change them too.
CHART_CONFIG = {
    "background": "transparent",
    # Explicit, so that Vega measures words in the font that the browser draws.
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        **dict.fromkeys(("labelColor", "titleColor"), "var(--quiet)"),
        **dict.fromkeys(("domainColor", "tickColor"), "var(--edge)"),
        **{"gridColor": "var(--line)", "titleFontWeight": "normal", "labelFontSize": 12, "titleFontSize": 12},
    },
    "legend": {
        **{"labelColor": "var(--ink)", "titleColor": "var(--quiet)"},
        **{"labelFontSize": 12, "labelLimit": 200, "layout": LEGENDS},
    },
    "title": {"color": "var(--ink)", "fontSize": 13, "fontWeight": "normal", "anchor": "start"},
    "text": {"color": "var(--ink)", "fontSize": 12},
    "range": {"category": COLOURS},
}


def check_view():
    """Raises a `ValueError` if the libraries of the extra `view` are not installed."""
    if missing := [name for module, name in LIBRARIES.items() if importlib.util.find_spec(module) is None]:
        raise ValueError(f'Pages need {" and ".join(missing)}: pip install "modeling-tempoformer[view]".')


def compile_chart(chart: "altair.TopLevelMixin") -> dict[str, Any]:
    """Compiles a chart of altair to a Vega specification, which `draw` in page.js draws with its named data."""
    import vl_convert

    return vl_convert.vegalite_to_vega({**chart.to_dict(), "config": CHART_CONFIG})


def render_page(
    template: str, data: Any, charts: "dict[str, altair.TopLevelMixin] | None", folder: Path, **values: Any
) -> str:
    """
    Renders a page as one HTML text.

    Args:
        template: The name of a template that extends `page.html.jinja`.
        data: The data that the page's script reads as `page.data`.
        charts: The charts by name; the script reads their Vega specifications as `page.charts`. None for a page
            without charts, which needs no extra.
        folder: The folder of the template, its styles and its scripts; it may use this folder's, too.
        values: Values that the template shows, including `title`.
    """
    settings = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    loader = FileSystemLoader([folder, FOLDER])
    environment = Environment(loader=loader, autoescape=True, **settings)
    # A style or a script, unescaped because it is ours.
    environment.globals["own_file"] = lambda name: Markup(loader.get_source(environment, name)[0])
    page_data = {"data": data, "charts": {name: compile_chart(chart) for name, chart in (charts or {}).items()}}
    vega = None if charts is None else vega_bundle()
    return environment.get_template(template).render(vega=vega, data=embed_data(page_data), **values)


@cache
def vega_bundle() -> Markup:
    """Bundles the script that draws charts, which takes a second or more."""
    import vl_convert

    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def embed_data(value: Any) -> Markup:
    """Writes a value as JSON for a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(ESCAPED))


def write_html(path: str | Path, html: str):
    """Writes a page whole or not at all."""
    with written_whole(Path(path)) as partial:
        partial.write_text(html, encoding="utf-8")
