"""Write the pictures of the imports into the page on the architecture: ``python docs/architecture.py``.

Below ``<!-- imports: airflow_provider_mail -->`` stands what :func:`diagram` makes of that package, for Mermaid, which
GitHub draws. A test compares.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import grimp

PAGE = Path(__file__).resolve().parent / "architecture.md"
CONTRACTS = tomllib.loads((PAGE.parents[1] / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

_PLACE = re.compile(r"<!-- imports: ([\w.]+) -->\n(?:```mermaid\n.*?```\n)?", re.DOTALL)


def boxes(package: str) -> list[list[str]]:
    """Return the members of each layer of a package, from the top, as its contract in `pyproject.toml` declares them.

    Members that may import each other are one name, with spaces between.

    :param package: full name of the package.
    """
    (layers,) = (contract["layers"] for contract in CONTRACTS if contract.get("containers") == [package])
    return [layer.replace(" : ", " ").split(" | ") for layer in layers]


def imports(package: str) -> set[tuple[str, str]]:
    """Return the pairs (importer, imported) of a package's boxes. Imports for type checking do not count.

    :param package: full name of the package.
    """
    graph = grimp.build_graph("airflow_provider_mail", exclude_type_checking_imports=True, cache_dir=None)
    box_of = {f"{package}.{name}": box for layer in boxes(package) for box in layer for name in box.split()}
    for module in box_of:
        graph.squash_module(module)
    pairs = {
        (box, box_of[imported])
        for module, box in box_of.items()
        for imported in graph.find_modules_directly_imported_by(module) & box_of.keys()
    }
    return {(importer, imported) for importer, imported in pairs if importer != imported}


def diagram(package: str) -> str:
    """Draw a box for each member and an arrow for each import. An arrow that follows from others is left out.

    :param package: full name of the package.
    """
    layers = boxes(package)
    arrows = imports(package)
    paths = set(arrows)
    for middle in (box for layer in reversed(layers) for box in layer):
        paths |= {(one, other) for one, to in paths for of, other in paths if to == of == middle}
    direct = {
        (one, other)
        for one, other in arrows
        if not any((one, to) in arrows and (to, other) in paths for _, to in arrows)
    }
    number = {box: n for n, box in enumerate(box for layer in layers for box in layer)}
    lines = [f'    box{n}["{box.replace(" ", ", ")}"]' for box, n in number.items()]
    lines += [f"    box{one} --> box{other}" for one, other in sorted((number[a], number[b]) for a, b in direct)]
    return "\n".join(("flowchart TD", *lines, ""))


def filled(page: str) -> str:
    """Return the page with each picture as the code is now.

    :param page: text of the page.
    """
    return _PLACE.sub(lambda place: f"<!-- imports: {place[1]} -->\n```mermaid\n{diagram(place[1])}```\n", page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
