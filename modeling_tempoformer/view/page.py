"""
Pages that a person opens from disk: one HTML file with its style, its script, its charts and its data, which asks
no other machine for anything. Needs the extra `view`.
"""

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..data.files import written_whole


if TYPE_CHECKING:
    import altair

FOLDER = Path(__file__).parent
LIBRARIES = {"altair": "altair", "vl_convert": "vl-convert-python"}
# A post cannot end the script element that holds it, or begin a comment in it.
ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
# The colours of classes and groups, in order; page.css says what they are in the light, in the dark and on paper.
COLOURS = [f"var(--group-{number})" for number in range(8)]
# Legends stand one below the other where there is no room beside.
LEGENDS = {"top": {"anchor": "start", "direction": {"signal": "width < 480 ? 'vertical' : 'horizontal'"}}}
# Charts take all colours from the page, so that they follow it into the dark and onto paper.
CHART_CONFIG = {
    "background": "transparent",
    # Named, so that Vega measures words as the browser draws them.
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
    """A chart of altair as a Vega specification. `draw` in page.js runs it, and gives its named data."""
    import vl_convert

    return vl_convert.vegalite_to_vega({**chart.to_dict(), "config": CHART_CONFIG})


def render_page(template: str, data: Any, charts: "dict[str, altair.TopLevelMixin]", **values: Any) -> str:
    """
    A page as one HTML text, of a template that extends `page.html.jinja`. Its script gets `data` as `page.data`, and
    the charts' Vega specifications as `page.charts`; the template shows `values`, `title` among them.
    """
    settings = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, **settings)
    environment.globals["own_file"] = own_file
    given = {"data": data, "charts": {name: compile_chart(chart) for name, chart in charts.items()}}
    return environment.get_template(template).render(vega=vega_bundle(), data=embed(given), **values)


@cache
def vega_bundle() -> Markup:
    """The script that draws charts; putting it together takes a second or more."""
    import vl_convert

    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def own_file(name: str) -> Markup:
    """A style or a script of this folder, for a template: it is ours, and not escaped."""
    return Markup((FOLDER / name).read_text(encoding="utf-8"))


def embed(value: Any) -> Markup:
    """JSON for a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(ESCAPED))


def write_page(path: str | Path, html: str):
    """Writes a page, which is there whole or not at all."""
    with written_whole(Path(path)) as partial:
        partial.write_text(html, encoding="utf-8")
