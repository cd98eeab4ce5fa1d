"""Build the documentation site: ``make site``.

Each version has a folder of its own: ``build/site/0.1``. Beside them lie ``versions.js``, which lists the folders, and
pages that lead to the newest. To publish, build into a folder that holds the older versions: ``make site SITE=...``.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import check
import pages
import reference
from sphinx.cmd.build import main as sphinx

ROOT = Path(__file__).resolve().parents[2]
_SOURCE = (ROOT / "airflow_provider_mail" / "__init__.py").read_text()
VERSION = re.findall(r'^__version__ = "(\d+\.\d+)', _SOURCE, re.MULTILINE)[0]

REDIRECT = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={0}">
<link rel="icon" href="data:,">
<title>Documentation</title>
<a href="{0}">Documentation</a>
"""
"""A page that leads to the same one of the newest version."""


def main(site: Path) -> int:
    """Build the site; return the exit code.

    :param site: folder of all versions.
    """
    (also,) = (section.pages for section in pages.sections() if section.title == "Reference")
    target = site / VERSION
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        pages.write(source)
        reference.write(source / "reference", also)
        options = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "auto", "-c", str(Path(__file__).parent)]
        if code := sphinx([*options, "-d", f"{folder}/doctrees", str(source), str(target)]):
            return code
    versions = sorted((each.name for each in site.iterdir() if each.is_dir()), key=number, reverse=True)
    (site / "versions.js").write_text(f"const VERSIONS = {json.dumps(versions)};\n")
    for page in ("index", "changelog"):
        (site / f"{page}.html").write_text(REDIRECT.format(f"{versions[0]}/{page}.html"))
    faults = check.faults(target)
    print("\n".join(faults) or f"{target}: {check.summary(target)}")
    return bool(faults)


def number(version: str) -> tuple[int, ...]:
    """Return a version in a form that sorts.

    :param version: such as ``0.1``.
    """
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
