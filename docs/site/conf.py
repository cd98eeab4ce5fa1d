"""Settings of Sphinx. ``make site`` writes the pages that it reads (`build.py`)."""

from __future__ import annotations

import tomllib
from typing import Any

from build import ROOT, VERSION

_project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project = _project["name"]
author = "the authors of airflow-provider-mail"
version = release = VERSION
language = "en"

extensions = ["searched", "myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
default_role = "code"

# Headings have the anchors that GitHub gives them, down to this level.
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]
# Dashes between arguments and their meanings; quotation marks stay as they are written.
smartquotes_action = "D"

add_module_names = False
python_maximum_signature_line_length = 88
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"
# Every reference in a docstring leads somewhere.
nitpicky = True

html_theme = "pydata_sphinx_theme"
html_baseurl = f"{_project['urls']['Documentation']}{VERSION}/"
html_title = f"{project} {version}"
html_logo = html_favicon = str(ROOT / "docs" / "integration-logos" / "mail.svg")
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("versions.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": project},
    "navbar_align": "left",
    "navbar_end": ["versions", "theme-switcher"],
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "footer_start": [],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
templates_path = ["templates"]


def find(app: Any, env: Any, node: Any, text: Any) -> Any:
    """Resolve a reference to a public name from another module; show types in signatures that have no page as text.

    :param app: Sphinx.
    :param env: its environment.
    :param node: the reference.
    :param text: what is shown.
    """
    if node.get("refdomain") != "py":
        return None
    domain = env.get_domain("py")
    name = node["reftarget"].rpartition(".")[2]
    (*found,) = (each for each, *_ in domain.get_objects() if each.rpartition(".")[2] == name)
    if len(found) == 1:
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", found[0], node, text)
    return None if "refwarn" in node else text


def setup(app: Any) -> None:
    """Connect the handler above."""
    app.connect("missing-reference", find)
