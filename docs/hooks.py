"""
For mkdocs: the pages of the packages beside those of the plugin, and docstrings as Transformers writes them, where
mkdocstrings takes their markup for text.
"""

import os
import re
from pathlib import Path

from mkdocs.structure.files import File


DEFAULT = re.compile(r", default:\s*<code>[^<]*</code>\s*")  # in the type already, and in the signature
TYPE = re.compile(r"<code>([^<]*[`*][^<]*)</code>")
NAME = re.compile(r"\[(?:<code>|`)([\w.]+)(?:</code>|`)\]")


ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)#\s]+)")


def place_on_site(path: Path) -> str | None:
    """Returns the place of a page or a picture on the site; None if it has none."""
    if path.is_relative_to(ROOT / "docs"):
        return path.relative_to(ROOT / "docs").as_posix()
    parts = path.relative_to(ROOT).parts
    return "/".join((parts[1], *parts[3:])) if parts[0] == "packages" and parts[2] == "docs" else None


def on_files(files, config):
    """Adds the pages of the packages, each package's in a folder of its name."""
    for path in sorted(ROOT.glob("packages/*/docs/*.md")):
        files.append(File.generated(config, place_on_site(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page, **kwargs) -> str:
    """Links lead from page to page in the repository, and on the site to the places that the pages have there."""
    source = Path(page.file.abs_src_path)

    def moved(match: re.Match) -> str:
        path = Path(os.path.normpath(source.parent / match[2]))
        there = place_on_site(path) if path.exists() else None
        return match[0] if there is None else match[1] + os.path.relpath(there, Path(page.file.src_uri).parent)

    return LINK.sub(moved, markdown)


def on_page_content(html: str, page, **kwargs) -> str:
    """Types without their marks; names written [`Name`] become links to their place on the page, if they have one."""
    if page.file.src_uri != "api.md":
        return html
    places = {}
    for identifier in re.findall(r'id="((?:modeling_tempoformer|research|semantic_change)\.[\w.]+)"', html):
        parts = identifier.split(".")
        places |= {".".join(parts[start:]): identifier for start in range(1, len(parts))}

    def link(match: re.Match) -> str:
        place, code = places.get(match[1]), f"<code>{match[1]}</code>"
        return f'<a href="#{place}">{code}</a>' if place else code

    def without_marks(match: re.Match) -> str:
        text = re.sub("`(.+?)`", r"<code>\1</code>", NAME.sub(link, match[1]))
        return text.replace("*optional*", "<em>optional</em>")

    return NAME.sub(link, TYPE.sub(without_marks, DEFAULT.sub("", html)))
