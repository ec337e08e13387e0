"""For mkdocs: a name in a docstring, written [`Name`] as in Transformers, becomes a link to its place on the page."""

import re


def on_page_content(html: str, page, **kwargs) -> str:
    if page.file.src_uri != "api.md":
        return html
    places = {}
    for identifier in re.findall(r'id="(modeling_tempoformer\.[\w.]+)"', html):
        parts = identifier.split(".")
        places |= {".".join(parts[start:]): identifier for start in range(1, len(parts))}

    def link(match: re.Match) -> str:
        place = places.get(match[1])
        code = f"<code>{match[1]}</code>"
        return f'<a href="#{place}">{code}</a>' if place else code

    return re.sub(r"\[<code>([\w.]+)</code>\]", link, html)
