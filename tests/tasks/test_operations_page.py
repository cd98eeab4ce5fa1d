"""The page "Operations" has a line for each operation of the specification, and every cell is what other tests see.

Which operators carry out an operation is what the service received of them (`test_everything.py`); an example is a DAG
of `example_dags`, all of which are run (`test_example_dags.py`).
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.document.examples import EXAMPLES
from tests.document.fact_types import Operation
from tests.document.facts import OPERATIONS
from tests.document.models import AUTHORIZE, form, model_of
from tests.support.env import ROOT
from tests.tasks.everything import tasks
from tests.tasks.test_everything import REQUESTS

VERBS = {
    "oauth.authorize": "`api.oauth.authorize_url`",
    "contacts.imports": "`hook.import_contacts`",
    "contacts.list.get": "`hook.iter_contacts`",
    "campaigns.get": "`hook.find_campaign`",
}
COMMANDS = {
    "oauth.authorize": ["airflow mail oauth login"],
    "oauth.token": ["airflow mail oauth login"],
    "lists.get": ["airflow mail check"],
    "campaigns.get": ["airflow mail campaigns", "airflow mail campaign"],
    "campaigns.stats.get": ["airflow mail campaign"],
}
"""Commands that carry an operation out; their tests are those of `tests/cli`."""

REASONS = dict.fromkeys(("oauth.authorize", "oauth.token"), "given by a person in a browser, once for a connection")
"""Why there is no operator and no example; of the other operations their examples say it."""


def operators(operation: Operation, folder: Path) -> dict[str, str]:
    """Those that send it, by name, with the task that shows it."""
    names = {task_id: kind for task_id, kind, _ in tasks(folder)}
    wanted = form({fact.wire for fact in operation.request})
    senders: dict[str, str] = {}
    for task_id, requests in REQUESTS.items():
        for path, body in requests:
            if path == operation.path and form(set(body)) in ("", wanted):
                senders.setdefault(names[task_id], task_id)
    return senders


def examples(names: list[str]) -> list[str]:
    """The example DAG with most of these operators."""
    files = sorted((ROOT / "example_dags").glob("mail_*.py"))
    uses = {path.name: sum(f"{name}(" in path.read_text() for name in names) for path in files}
    best = max(uses, key=lambda name: uses[name])
    return [best] if uses[best] else []


def cells(operation: Operation, folder: Path) -> list[str]:
    senders = operators(operation, folder)
    by = [f"`{name}`" for name in [*sorted(senders), *COMMANDS.get(operation.key, ())]]
    reason = REASONS.get(operation.key) or EXAMPLES[operation.key].without_operator
    shown = [f"[`{name}`](../example_dags/{name})" for name in examples(sorted(senders))]
    return [
        f"`{operation.key}`",
        "an address, not a request" if operation.key == AUTHORIZE else f"`{model_of(operation).__name__}`",
        VERBS.get(operation.key, "`hook.send`"),
        "<br>".join(by) or (reason and "none"),
        "<br>".join(shown) or reason,
    ]


def test_the_page_has_every_operation(tmp_path: Path) -> None:
    path = ROOT / "docs" / "operations.md"
    words = [text for text in path.read_text().splitlines() if not text.startswith("| `")]
    lines = [cells(operation, tmp_path) for operation in OPERATIONS]
    assert [line for line in lines if not all(line)] == []
    page = "\n".join([*words, *(f"| {' | '.join(line)} |" for line in lines)]) + "\n"
    if os.environ.get("WRITE_PAGES"):
        path.write_text(page)
    assert path.read_text() == page, "make docs writes it anew"
