"""Content that is the name of a file in the DAG's folder or ``template_searchpath``, as in Airflow's operators."""

from __future__ import annotations

from typing import Any

ENDINGS = (".html", ".htm", ".txt")


def from_file(content: Any) -> Any:
    """A template of what is in the file, for the name of one; everything else as it is.

    Airflow's own ``template_ext`` counts for every template field: a campaign called ``spring.html`` and an attachment
    called ``terms.txt`` would be looked for as files. This is for one argument, and works where the task is mapped.
    """
    if not isinstance(content, str) or "\n" in content or not content.lower().endswith(ENDINGS):
        return content
    if any(mark in content for mark in "<>{}"):
        return content
    return f"{{% include {content!r} %}}"
