"""Sphinx extension: draws Mermaid blocks while the site is built, so that reading needs no script and no network."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

import mmdr
from docutils import nodes
from docutils.parsers.rst import Directive

COLOURS = {
    "light": {"primaryColor": "#eef4fb", "primaryTextColor": "#1b2733", "lineColor": "#5a6b7b"},
    "dark": {"primaryColor": "#223043", "primaryTextColor": "#e6edf5", "lineColor": "#9fb3c8"},
}


class MermaidDirective(Directive):
    """A Mermaid block, drawn once for light pages and once for dark ones."""

    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Return both drawings; the theme shows the one that fits."""
        source = "\n".join(self.content)
        name = hashlib.sha1(source.encode()).hexdigest()[:8]
        drawings = "".join(f'<div class="only-{theme}">{drawn(source, theme, name)}</div>' for theme in COLOURS)
        return [nodes.raw("", f'<div class="diagram">{drawings}</div>', format="html")]


def drawn(source: str, theme: str, name: str) -> str:
    """Return the drawing as SVG.

    :param source: diagram in Mermaid's language.
    :param theme: ``light`` or ``dark``.
    :param name: part of the drawing's ids, since a page may hold several.
    """
    variables = ", ".join(f'"{key}": "{value}"' for key, value in COLOURS[theme].items())
    settings = f'%%{{init: {{"theme": "base", "fontFamily": "sans-serif", "themeVariables": {{{variables}}}}}}}%%\n'
    return mmdr.render(settings + source).svg().replace("merman", f"diagram-{name}-{theme}")


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("mermaid", MermaidDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
