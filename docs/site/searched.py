"""What the search of the site looks through: the text of each section, in ``search-index.js``.

``templates/search.html`` loads it, and ``static/search.js`` ranks it, without a request to anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

ROWS = "messages"
"""The page of which each row is found by itself: a message that was pasted leads to it."""
_OWN = (nodes.section, addnodes.desc)


def parts(doctree: nodes.document, page: str) -> Iterator[tuple[str, str, str]]:
    """Yield anchor, title and text of each section and each documented name, without those within it.

    :param doctree: the page.
    :param page: its name.
    """
    for node in doctree.findall(lambda node: isinstance(node, _OWN)):
        head = node.next_node(nodes.title if isinstance(node, nodes.section) else addnodes.desc_signature)
        if head is None:
            continue
        anchor = "".join((node if isinstance(node, nodes.section) else head).get("ids", [])[:1])
        if page == ROWS:
            yield from ((anchor, "", row.children[0].astext()) for row in _found(node, nodes.row))
            continue
        text = " ".join(part.astext() for part in _found(node, nodes.TextElement) if not isinstance(part, nodes.title))
        yield anchor, head.get("fullname") or head.astext(), text


def _found(node: nodes.Node, kind: type[nodes.Node]) -> Iterator[nodes.Node]:
    """Yield the outermost nodes of a kind that belong to no section or name within this one."""
    for child in node.children:
        if isinstance(child, kind) and not isinstance(child, nodes.raw):
            yield child
        elif not isinstance(child, (*_OWN, nodes.raw)):
            yield from _found(child, kind)


def write(app: Any, error: Exception | None) -> None:
    """Write the index.

    :param app: Sphinx.
    :param error: why the build failed.
    """
    if error or app.builder.format != "html":
        return
    pages = []
    for page in sorted(app.env.found_docs):
        doctree = app.env.get_doctree(page)
        keywords = [meta["content"] for meta in doctree.findall(nodes.meta) if meta.get("name") == "keywords"]
        pages.append([page, app.env.titles[page].astext(), " ".join(keywords), list(parts(doctree, page))])
    text = json.dumps(pages, ensure_ascii=False, separators=(",", ":"))
    (Path(app.outdir) / "search-index.js").write_text(f"Search.load({text});\n")


def setup(app: Any) -> dict[str, bool]:
    """Connect the handler above."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
