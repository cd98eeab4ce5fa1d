"""Tags and links in the content of mail."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TAG = re.compile(r"\{\{([^{}]++)\}\}")
_ANCHOR = re.compile(r"<a\b[^<>]*+>", re.IGNORECASE)


def fill(text: str, params: Mapping[str, Any]) -> str:
    """Replace each ``{{tag}}`` that has a value.

    :param text: a subject or a content.
    :param params: values by tag.
    """
    if "{{" not in text:
        return text
    return _TAG.sub(lambda tag: str(params.get(tag[1].strip(), tag[0])), text)


def tracks_clicks(content: str) -> bool:
    """Whether a link may be tracked; ``ef:disable-tracking`` excludes its anchor.

    :param content: HTML.
    """
    anchors = _ANCHOR.findall(content)
    return not anchors or not all("ef:disable-tracking" in anchor for anchor in anchors)
