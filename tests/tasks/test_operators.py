"""What holds for every task that this package offers: arguments, template fields, a way through the database."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, XComArg, task
from airflow.serialization import serialized_objects

import airflow_provider_mail
from airflow_provider_mail.version_compat import BaseHook
from tests.tasks.everything import OPERATORS, offered

# fmt: off
MERGED = {"sql_conn_id": "warehouse", "table": "mail_contacts", "manifest": "file:///tmp/contacts/1/manifest.json"}
CAMPAIGN = {"sender_mail": "news@example.com", "send_list_names": ["friends"], "subject": "a", "content": "<p>a</p>"}
COUNTED = {"mail_name": "a", "sent_count": 1, "open_count": 0, "click_count": 0}
TO_SQL = {"sql_conn_id": "warehouse"}
OF_NAME, OF_LIST, OF_SENDER = {"mail_name": "a"}, {"list_name": "friends"}, {"sender_email": "new.example.com"}
OF_CONTACT = {"contact_email": "ada@example.com"}
_NEEDED: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("MailCampaignSensor", "MailCancelCampaignOperator", "MailDeleteCampaignOperator",
                     "MailStatsSettledSensor"), OF_NAME),
    **dict.fromkeys(("MailCampaignStatsToSqlOperator", "MailCampaignsToSqlOperator", "MailEventsReconcileOperator",
                     "MailEventsToSqlOperator", "MailTransactionalStatsToSqlOperator"), TO_SQL),
    "MailCompareCampaignsOperator": {"a": COUNTED, "b": COUNTED},
    **dict.fromkeys(("MailCreateCampaignOperator", "MailPreflightOperator"), CAMPAIGN),
    **dict.fromkeys(("MailCreateListOperator", "MailDeleteListOperator"), OF_LIST),
    **dict.fromkeys(("MailCreateStageTableOperator", "MailMergeStageTableOperator"), MERGED),
    **dict.fromkeys(("MailDeleteContactOperator", "MailUpsertContactOperator"), OF_CONTACT),
    **dict.fromkeys(("MailDeleteSenderOperator", "MailSenderSensor"), OF_SENDER),
    "MailAddSenderOperator": OF_SENDER | {"sender_type": 1},
    "MailContactsToSqlOperator": TO_SQL | OF_LIST,
    "MailCreateTemplateOperator": {
        "template_name": "a", "template_content": "<p></p>", "template_subject": "b"},
    "MailDeleteTemplateOperator": {"template_name": "a"},
    "MailInboxSensor": {},
    "MailImportContactsOperator": {"contacts": [{"email": "ada@example.com"}]},
    "MailSaveWebhookOperator": {"trans_enable": False},
    "MailSendBatchOperator": {"sender_mail": "news@example.com", "messages": [{"to": "ada@example.com"}]},
    "MailSendTestOperator": {"sender_mail": "news@example.com", "seed_list_names": ["staff"], "subject": "a",
                             "content": "<p>a</p>"},
    "MailSendOperator": {
        "sender_mail": "news@example.com", "to": "ada@example.com", "subject": "a", "content": "<p></p>"},
    "MailStatsGateOperator": OF_NAME | {"max_hard_bounce": 0.02},
    "ObjectStorageToMailContactsOperator": {"path": "file:///people.csv"},
    "SqlToMailBatchOperator": {"sql_conn_id": "crm", "sql": "SELECT 1", "sender_mail": "news@example.com"},
    "MailCampaignsToObjectStorageOperator": {"path": "file:///tmp/campaigns"},
    "MailContactsToObjectStorageOperator": OF_LIST | {"path": "file:///tmp/contacts"},
    "MailStatsToObjectStorageOperator": {"path": "file:///tmp/statistics"},
    "MailVerifySenderOperator": {"from_domain": "new.example.com", "selector": "mail"},
    "SqlToMailContactsOperator": {"sql_conn_id": "crm", "sql": "SELECT 1"},
}
NEEDED: dict[type[BaseOperator], dict[str, Any]] = {OPERATORS[name]: given for name, given in _NEEDED.items()}
"""The smallest arguments of each."""

LOCAL = {
    "MailCompareCampaignsOperator": "a",
    "MailEventsToSqlOperator": "inbox_conn_id",
    "MailInboxSensor": "inbox_conn_id",
    "MailCreateStageTableOperator": "sql_conn_id",
    "MailMergeStageTableOperator": "sql_conn_id",
}
"""They send nothing to the service; with an argument that tells mapped ones apart."""
# fmt: on

# Under one name from Airflow 3.2 on, under another before.
SERIALIZATION: Any = getattr(serialized_objects, "DagSerialization", None) or serialized_objects.SerializedDAG

every_kind = pytest.mark.parametrize("kind", NEEDED, ids=lambda kind: kind.__name__)


def our_bases(kind: type[BaseOperator]) -> list[Any]:
    return [base for base in kind.__mro__ if base.__module__.startswith(airflow_provider_mail.__name__)]


def arguments(kind: type[BaseOperator]) -> dict[str, inspect.Parameter]:
    """Every argument of ours that the operator takes."""
    return {
        name: parameter
        for name, parameter in inspect.signature(kind.__init__).parameters.items()
        if name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    }


def constructor(kind: type[BaseOperator]) -> Callable[..., None]:
    """The ``__init__`` that declares its arguments."""
    declaring = next(base for base in our_bases(kind) if "__init__" in vars(base))
    return inspect.unwrap(declaring.__init__)


def made(kind: type[BaseOperator], **given: Any) -> BaseOperator:
    return kind(**{"task_id": kind.__name__} | NEEDED[kind] | given)


def test_all_of_them_are_tested_here() -> None:
    # By name: a test that imports a module anew makes another class of the same name.
    assert {kind.__name__ for kind in offered()} == _NEEDED.keys()


@every_kind
def test_arguments(kind: type[BaseOperator], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are documented keywords; making a task connects to nothing."""
    parameters = arguments(kind)
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert "mail_conn_id" in parameters or kind.__name__ in LOCAL
    assert "mail_conn_id" not in parameters or parameters["mail_conn_id"].default == "mail_default"
    documented = "".join(base.__doc__ or "" for base in our_bases(kind))
    assert [name for name in sorted(parameters) if f":param {name}:" not in documented] == []

    def look_up(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was looked up while a DAG was parsed")

    monkeypatch.setattr(BaseHook, "get_connection", look_up)
    made(kind)


@every_kind
def test_each_argument_is_set_and_a_field_if_templated(kind: type[BaseOperator]) -> None:
    """Texts and collections are templates; a template does not decide how a task works."""
    init = constructor(kind)
    types = {name: type_ for name, type_ in init.__annotations__.items() if name not in ("kwargs", "return")}
    assert kind.template_fields == tuple(name for name, type_ in types.items() if "Templated[" in type_)
    values = {name for name, type_ in types.items() if re.search(r"\b(str|Mapping|Sequence|Collection|Path)\b", type_)}
    assert values - set(kind.template_fields) <= {"ignore_differences"}
    statements = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(init))))
    calls = [node for node in statements if isinstance(node, ast.Call)]
    (call,) = [call for call in calls if getattr(call.func, "attr", None) == "set_arguments"]
    assert {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords} == {name: name for name in types}


@every_kind
def test_a_template_or_an_output_may_stand_for_each_field(kind: type[BaseOperator]) -> None:
    with DAG("outputs", schedule=None):

        @task
        def something() -> str:
            return "something"

        for name in kind.template_fields:
            template = f"{{{{ params.{name} }}}}"
            assert getattr(made(kind, **{name: template, "task_id": f"{name}_template"}), name) == template, name
            output = something()
            operator = made(kind, **{name: output, "task_id": name})
            assert isinstance(getattr(operator, name), XComArg)
            assert operator.upstream_task_ids == {output.operator.task_id}, name


def test_a_dag_of_all_of_them_is_stored_without_a_warning(new_dag: Callable[..., DAG]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        with new_dag() as dag:
            for kind, needed in NEEDED.items():
                made(kind)
                conn_id = LOCAL.get(kind.__name__, "mail_conn_id")
                fixed = {name: value for name, value in needed.items() if name != conn_id}
                each = [needed.get(conn_id, name) for name in ("one", "two")]
                kind.partial(task_id=f"{kind.__name__}_mapped", **fixed).expand(**{conn_id: each})
        again = SERIALIZATION.from_dict(json.loads(json.dumps(SERIALIZATION.to_dict(dag))))
    for kind in NEEDED:
        for task_id in (kind.__name__, f"{kind.__name__}_mapped"):
            operator = again.get_task(task_id)
            assert operator.task_type == kind.__name__
            assert tuple(operator.template_fields) == tuple(kind.template_fields)


def test_a_dag_with_functions_is_the_same_each_time_it_is_parsed(airflow_home: Path) -> None:
    """Objects in memory have another address each time."""
    from airflow.models.serialized_dag import SerializedDagModel

    def parsed() -> DAG:
        def people() -> Iterator[dict[str, str]]:
            yield {"email": "planted@example.com"}

        with DAG("functions", schedule=None) as dag:
            for name, contacts in (("function", people), ("lambda", lambda: []), ("generator", people())):
                OPERATORS["MailImportContactsOperator"](task_id=name, contacts=contacts)
        return dag

    dags = [parsed(), parsed()]  # both are kept, so that no address is used again
    stored = [SERIALIZATION.to_dict(dag) for dag in dags]
    assert "planted" not in json.dumps(stored)
    assert len({SerializedDagModel.hash(dag) for dag in stored}) == 1
