"""The pages of the site, copied from where GitHub shows them, with links that lead to their places on the site.

The sections and their pages are those of ``docs/index.md``.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import messages
import reference

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "contributing/architecture.md": "architecture.md",
    "contributing/decisions.md": "decisions.md",
    "contributing/releasing.md": "releasing.md",
}
"""Pages that are not in ``docs``, with their place on the site."""

_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_SEARCH = re.compile(r"\A<!-- search: (.*) -->\n")
_CODE = re.compile(r"(```.*?^```$)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """A part of the navigation: a heading of the index with the table below it.

    :param title: the heading.
    :param table: Markdown table of the pages, with links relative to ``docs``.
    """

    title: str
    table: str

    @property
    def name(self) -> str:
        """Its own page on the site."""
        return "reference/index" if self.title == "Reference" else self.title.lower().replace(" ", "-")

    @property
    def pages(self) -> list[str]:
        """Its pages on the site, without suffix."""
        listed = [place(f"docs/{link[2]}") for link in _LINK.finditer(self.table)]
        return [page.removesuffix(".md") for page in listed if page]


def sections() -> list[Section]:
    """Return the sections of the index."""
    parts = re.split(r"^## (.*)\n", (ROOT / "docs" / "index.md").read_text(), flags=re.MULTILINE)
    return [Section(title, table.strip()) for title, table in zip(parts[1::2], parts[2::2], strict=True)]


def place(path: str) -> str | None:
    """Return where on the site a file of the repository is, ``None`` where it is not.

    :param path: path in the repository, such as ``docs/campaigns.md``.
    """
    path = os.path.normpath(path)
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path.startswith("example_dags/"):
        return f"examples/{PurePosixPath(path).stem}.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def moved(text: str, path: str) -> str:
    """Return a page with links for the site. What the site does not have keeps its text and loses its link.

    :param text: the page in Markdown.
    :param path: its path in the repository.
    """
    own = place(path) or path

    def link(found: re.Match[str]) -> str:
        label, target, anchor = found[1], found[2], found[3] or ""
        if not target or "://" in target:
            return found[0]
        file = os.path.normpath(Path(path).parent / target)
        page = place(file)
        if (page is None and (ROOT / file).exists()) or (ROOT / file).is_dir():
            return label
        return f"[{label}]({os.path.relpath(page or file, Path(own).parent)}{anchor})"

    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in _CODE.split(text))


def searchable(text: str) -> str:
    """Return a page whose comment ``<!-- search: ... -->`` is known to the search of the site.

    :param text: the page in Markdown.
    """

    def keywords(comment: re.Match[str]) -> str:
        # Sphinx indexes what is between two commas as one word, and splits a query into single words.
        words = ", ".join(dict.fromkeys(re.findall(r"\w+", comment[1])))
        return f'---\nmyst:\n  html_meta:\n    keywords: "{words}"\n---\n'

    return _SEARCH.sub(keywords, text)


def labelled(text: str, labels: list[tuple[str, str]]) -> str:
    """Return a page with the labels of its how-to guides, each above the heading of the section on that class.

    :param text: the page in Markdown.
    :param labels: label and name of each class.
    """
    parts = re.split(r"^(?=#+ )", _CODE.sub(lambda code: code[0].replace("\n#", "\n\0#"), text), flags=re.MULTILINE)
    headings = [part.partition("\n")[0] for part in parts]
    for label, name in labels:
        named = [number for number, heading in enumerate(headings) if f"`{name}`" in heading]
        for mention in (rf"\b{name}\(", rf"\b{name}\b"):  # an example rather than a mention
            named += [number for number, part in enumerate(parts) if re.search(mention, part)]
        if not named:
            raise LookupError(f"{name}: the guide that its docstring names does not mention it")
        parts[named[0]] = f"({label})=\n{parts[named[0]]}"
    return "".join(parts).replace("\0", "")


def write(folder: Path) -> None:
    """Write all pages but those of the reference.

    :param folder: where to; made here.
    """
    for kind in ("grafana", "images", "sql"):
        shutil.copytree(ROOT / "docs" / kind, folder / kind)
    guides = reference.guides()
    docs = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    for path in (*docs, *(path for path in OUTSIDE if (ROOT / path).exists())):
        target = folder / (place(path) or path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(searchable(labelled(moved((ROOT / path).read_text(), path), guides.get(path, []))))
    listed = folder / "messages.md"
    listed.write_text(messages.page(listed.read_text()))
    overview = folder / "overview.md"
    overview.write_text(overview.read_text().replace("# airflow-provider-mail\n", "# Overview\n", 1))
    write_examples(folder / "examples")
    write_sections(folder)


def write_examples(folder: Path) -> None:
    """Write a page for each example DAG, without the marks of the parts that guides show.

    :param folder: where to; made when missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "example_dags").glob("mail_*.py")):
        code = re.sub(r"^ *# \[(START|END) \w+\]\n", "", path.read_text(), flags=re.MULTILINE)
        (folder / f"{path.stem}.md").write_text(f"# {path.stem}\n\n```python\n{code}```\n")


def write_sections(folder: Path) -> None:
    """Write the first page of each section, and the navigation into the index.

    :param folder: folder of the pages.
    """
    parts = sections()
    listed = {page for section in parts for page in section.pages}
    others = [page.removesuffix(".md") for page in OUTSIDE.values()]
    for section in parts:
        if section.name == "reference/index":  # generated from the source
            continue
        own = section.pages
        if section.title == "Project":
            own += [page for page in others if page not in listed and (folder / f"{page}.md").exists()]
        text = f"# {section.title}\n\n{moved(section.table, 'docs/index.md')}\n\n{toctree(own, 'hidden', 'glob')}"
        if section.title == "Guides":
            text += "\n## Example DAGs\n\n" + toctree(["examples/*"], "glob", "caption: Example DAGs")
        (folder / f"{section.name}.md").write_text(text)
    index = folder / "index.md"
    index.write_text(f"{index.read_text()}\n{toctree([section.name for section in parts], 'hidden')}")


def toctree(pages: list[str], *options: str) -> str:
    """Return a table of contents in Markdown.

    :param pages: pages without suffix, or patterns.
    :param options: options of the directive, with their values behind a colon.
    """
    settings = (f":{name}:{value}" for name, _, value in (option.partition(":") for option in options))
    return "\n".join(["```{toctree}", *settings, "", *pages, "```", ""])
