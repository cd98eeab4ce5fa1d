"""Tags, links and text in the content of mail."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

_TAG = re.compile(r"\{\{([^{}]++)\}\}")
_ANCHOR = re.compile(r"<a\b[^<>]*+>", re.IGNORECASE)
_TOKEN = re.compile(r"<(/?+)(\w++)[^<>]*+>|<[!?][^<>]*+>|[^<]++|<")
_SPACE = re.compile(r"\s++")
_INVISIBLE = {"head", "script", "style", "template", "title"}
_BLOCKS = {"address", "article", "blockquote", "br", "div", "dl", "dt", "footer", "h1", "h2", "h3", "h4", "h5", "h6",
           "header", "hr", "li", "ol", "p", "pre", "section", "table", "tr", "ul"}  # fmt: skip


def fill(text: str, params: Mapping[str, Any]) -> str:
    """Replace each ``{{tag}}`` that has a value."""
    if "{{" not in text:
        return text
    return _TAG.sub(lambda tag: str(params.get(tag[1].strip(), tag[0])), text)


def tracks_clicks(content: str) -> bool:
    """Whether a link may be tracked; ``ef:disable-tracking`` excludes its anchor."""
    anchors = _ANCHOR.findall(content)
    return not anchors or not all("ef:disable-tracking" in anchor for anchor in anchors)


def to_text(content: str) -> str:
    """Return the text of HTML: a line for each block, without styles and scripts."""
    parts: list[str] = []
    inside = None
    for token in _TOKEN.finditer(content):
        tag = token[2].lower() if token[2] else None
        if inside is not None:
            inside = None if token[1] and tag == inside else inside
        elif tag in _INVISIBLE and not token[1]:
            inside = tag
        elif tag is None:
            parts.append("" if token[0].startswith(("<!", "<?")) else _SPACE.sub(" ", token[0]))
        else:
            parts.append("\n" if tag in _BLOCKS else "")
    lines = (line.strip() for line in html.unescape("".join(parts)).splitlines())
    return "\n".join(line for line in lines if line)
