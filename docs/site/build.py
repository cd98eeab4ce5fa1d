"""Build the documentation site: ``make site``.

Each version has a folder of its own: ``build/site/0.1``. Beside them lie ``versions.js``, which lists the folders, and
pages that lead to the newest. To publish, build into a folder that holds the older versions: ``make site SITE=...``.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import check
import pages
import reference
from sphinx.cmd.build import main as sphinx

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "build" / "site-source"
VERSION = ".".join(
    re.findall(r"\d+", (ROOT / "airflow_provider_mail" / "__init__.py").read_text().partition("__version__")[2])[:2]
)

REDIRECT = '<!doctype html>\n<meta http-equiv="refresh" content="0; url={0}">\n<a href="{0}">Documentation</a>\n'


def main(site: Path) -> int:
    """Build the site; return the exit code.

    :param site: folder of all versions.
    """
    pages.write(SOURCE)
    (also,) = (section.pages for section in pages.sections() if section.title == "Reference")
    reference.write(SOURCE / "reference", also)
    here, target = Path(__file__).parent, site / VERSION
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--fresh-env", "--jobs", "auto"]
    doctrees = ROOT / "build" / "site-doctrees"
    if code := sphinx([*options, "-c", str(here), "-d", str(doctrees), str(SOURCE), str(target)]):
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
    sys.exit(main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "site"))
