"""Check a built site: every link and anchor leads somewhere, nothing is loaded from elsewhere, every name is near."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import reference

LOADS = {"src", "srcset", "poster", "data"}
"""Attributes that make a browser load something."""
LOADING = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "manifest"}
"""Relations (``rel``) that do so."""


class Page(HTMLParser):
    """What a page of HTML refers to.

    :param path: the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect ids, links, and what is loaded."""
        loads = tag == "link" and bool(LOADING & set((dict(attrs).get("rel") or "").split()))
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.ids.add(value)
            elif name == "href" and tag in ("a", "area"):
                self.links.append(value)
            elif name in LOADS or (name == "href" and loads):
                self.loaded.append(value)


@cache
def page(path: Path) -> Page:
    """Return a parsed page.

    :param path: the file.
    """
    return Page(path)


def targets(path: Path, links: list[str]) -> Iterator[tuple[str, Path, str]]:
    """Yield the links of a page that stay on the site, with the file and the anchor that they lead to.

    :param path: the page.
    :param links: its links.
    """
    for link in links:
        url, anchor = urldefrag(urljoin(path.as_uri(), link))
        if url.startswith("file:"):
            yield link, Path(unquote(url.partition("?")[0].removeprefix("file://"))), unquote(anchor)


def is_page(path: Path) -> bool:
    """Whether there is such a page.

    :param path: the file.
    """
    return path.suffix == ".html" and path.is_file()


def pages(site: Path) -> list[Path]:
    """Return the pages, without what the theme brings along.

    :param site: folder of the built site.
    """
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def faults(site: Path) -> list[str]:
    """Return what is wrong, a line each.

    :param site: folder of the built site.
    """
    found = []
    for path in pages(site):
        mine, name = page(path), path.relative_to(site)
        for link, target, anchor in targets(path, mine.links + mine.loaded):
            if not target.is_file():
                found.append(f"{name}: {link} leads nowhere")
            elif anchor and is_page(target) and anchor not in page(target).ids:
                found.append(f"{name}: {link}: no such anchor")
        found += [f"{name}: loads {each}" for each in mine.loaded if each.startswith(("http:", "https:", "//"))]
    return found + [f"more than two clicks from the start: {each}" for each in far_names(site)]


def far_names(site: Path) -> list[str]:
    """Return the public names that two clicks from the start do not reach.

    :param site: folder of the built site.
    """
    start = site / "index.html"
    first = {target for _, target, _ in targets(start, page(start).links)}
    reached = {place[1:] for one in first if is_page(one) for place in targets(one, page(one).links)}
    anchors = {anchor for target, anchor in reached if is_page(target) and anchor in page(target).ids}
    names = [f"{each.full_module}.{each.name}" for each in reference.public_names()]
    return [name for name in names if name not in anchors]


def summary(site: Path) -> str:
    """Return how much was checked.

    :param site: folder of the built site.
    """
    files = pages(site)
    return f"{len(files)} pages, {sum(len(page(path).links) for path in files)} links"


if __name__ == "__main__":
    sys.exit("\n".join(faults(Path(sys.argv[1]).resolve())))
