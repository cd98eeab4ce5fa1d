"""Content given as the name of a file in the DAG's folder or in ``template_searchpath``."""

from __future__ import annotations

from typing import Any

ENDINGS = (".html", ".htm", ".txt")


def from_file(content: Any) -> Any:
    """Turn the name of a file into a template that includes the file; return anything else unchanged.

    Airflow's own ``template_ext`` applies to every template field: a campaign called ``spring.html`` and an attachment
    called ``terms.txt`` would be opened as files. This is for one argument, and works in mapped tasks.

    :param content: the value of the argument.
    """
    if not isinstance(content, str) or "\n" in content or not content.lower().endswith(ENDINGS):
        return content
    if any(mark in content for mark in "<>{}"):
        return content
    return f"{{% include {content!r} %}}"
