"""For mkdocs: docstrings as Transformers writes them, where mkdocstrings takes their markup for text."""

import re


DEFAULT = re.compile(r", default:\s*<code>[^<]*</code>\s*")  # in the type already, and in the signature
TYPE = re.compile(r"<code>([^<]*[`*][^<]*)</code>")
NAME = re.compile(r"\[(?:<code>|`)([\w.]+)(?:</code>|`)\]")


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
