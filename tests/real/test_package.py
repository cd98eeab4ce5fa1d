"""What somebody gets who installs the package: the wheel, built from this tree, and what it says of itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from xml.etree import ElementTree

import airflow
import jsonschema
import pytest

import airflow_provider_mail
import mail_emulator
from airflow_provider_mail.get_provider_info import get_provider_info
from tests.support.env import ROOT

PACKAGE = Path(airflow_provider_mail.__path__[0])
SOURCES = [path.read_text() for path in sorted(PACKAGE.rglob("*.py"))]
GUIDE = r"airflow_provider_mail/docs/[\w/-]+\.md"

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of this tree, and with the wheel that was built from it."""
    out = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--out-dir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.Path:
    """The built wheel's root."""
    (path,) = built.glob("*.whl")
    return zipfile.Path(path)


def files(*folders: str) -> set[str]:
    """The files below these folders of the repository, without what Python and the tests leave there."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return {path.relative_to(ROOT).as_posix() for path in paths if "__pycache__" not in path.parts}


def test_the_wheel_has_the_package_and_the_pages_and_nothing_else(wheel: zipfile.Path) -> None:
    pages = {f"airflow_provider_mail/{path}" for path in files("docs") if not re.match(r"docs/(site/|.*\.py$)", path)}
    names = {path for path in wheel.root.namelist() if not path.endswith("/")}
    assert {path for path in names if ".dist-info/" not in path} == pages | files("airflow_provider_mail")
    assert {"airflow_provider_mail/py.typed", "airflow_provider_mail/docs/sql/freshness.sql"} <= names
    for name in ("LICENSE", "NOTICE"):
        assert any(path.endswith(f".dist-info/licenses/{name}") for path in names)
    templates = {path.rpartition("/")[2] for path in names if path.endswith(".jinja2")}
    assert templates == {"notification.html.jinja2", "summary.html.jinja2"}


def test_the_sdist_has_what_is_needed_to_build_and_test(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    folders = (
        "airflow_provider_mail", "benchmarks", "constraints", "contributing", "dbt", "docs", "emulator", "example_dags",
        "tests",
    )  # fmt: skip
    pages = {"README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "NOTICE", "SECURITY.md"}
    assert names == files(*folders) | pages | {".gitignore", "Makefile", "PKG-INFO", "conftest.py", "pyproject.toml"}


def test_the_guides_that_are_named_are_on_the_site_and_in_the_wheel(wheel: zipfile.Path) -> None:
    """By docstrings, in one form, and by the provider information."""
    guides = {guide for source in SOURCES for guide in re.findall(GUIDE, source)}
    info = get_provider_info()
    (integration,) = info["integrations"]
    named = [*integration["how-to-guide"], *(transfer["how-to-guide"] for transfer in info["transfers"])]
    paths = {*guides, *(f"airflow_provider_mail{path}" for path in (*named, integration["logo"]))}
    assert "airflow_provider_mail/docs/campaigns.md" in guides
    assert [path for path in sorted(paths) if not wheel.joinpath(path).is_file()] == []

    block = re.compile(r"^class (\w+)(?:(?!^class ).)*?seealso:: (.*?)\n\n", re.MULTILINE | re.DOTALL)
    hints = [hint for source in SOURCES for hint in block.findall(source)]
    assert len(hints) > 30
    kind = "(?:operator|sensor|trigger|notifier)"
    form = rf"the guide :ref:`howto/{kind}:NAME`\s+\(in the package: ``{GUIDE}``\)\."
    assert [name for name, hint in hints if not re.fullmatch(form.replace("NAME", name), hint)] == []


def test_airflow_accepts_the_provider_information() -> None:
    schema = json.loads(Path(airflow.__path__[0], "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_what_a_list_of_providers_shows_and_the_wheel_needs(wheel: zipfile.Path) -> None:
    """Airflow's ecosystem page and the registries ask for a name, a sentence, addresses, a license and a logo."""
    (folder,) = (each for each in wheel.iterdir() if each.name.endswith(".dist-info"))
    metadata = Parser().parsestr((folder / "METADATA").read_text(encoding="utf-8"))
    assert re.fullmatch(r"[A-Z][^\n]{20,140}\.", metadata["Summary"])
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    frameworks = {"Framework :: Apache Airflow", "Framework :: Apache Airflow :: Provider"}
    assert frameworks <= set(metadata.get_all("Classifier", []))
    addresses = dict(each.split(", ", 1) for each in metadata.get_all("Project-URL", []))
    assert list(addresses) == ["Documentation", "Changelog", "Issues", "Source"]
    assert (metadata["Author"], metadata["Maintainer"]) == tuple(
        f"The {kind} of airflow-provider-mail" for kind in ("authors", "maintainers")
    )
    links = re.findall(r"\]\(([^)]*)\)", str(metadata.get_payload()))
    assert links
    assert [link for link in links if not link.startswith(addresses["Documentation"])] == []
    assert addresses["Changelog"] == f"{addresses['Documentation']}changelog.html"
    (integration,) = get_provider_info()["integrations"]
    logo = ElementTree.parse(ROOT / integration["logo"].lstrip("/")).getroot()
    left, top, width, height = map(float, logo.attrib["viewBox"].split())
    assert (left, top, width) == (0, 0, height)

    # The quickstart's `pip install` brings everything that the quickstart uses.
    needed = {re.split(r"[<>=;\[ ]", each)[0]: each for each in metadata.get_all("Requires-Dist", [])}
    direct = {"apache-airflow", "apache-airflow-providers-common-sql", "httpx", "idna", "msgspec", "pydantic"}
    assert direct <= set(needed)
    assert needed["apache-airflow-providers-sqlite"].endswith("; extra == 'sqlite'")
    assert needed["mail-emulator"] == f"mail-emulator=={mail_emulator.__version__}; extra == 'emulator'"
    assert {"mysql", "postgres", "sqlite"} <= set(metadata.get_all("Provides-Extra", []))
