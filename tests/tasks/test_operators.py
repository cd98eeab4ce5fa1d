"""What holds for every task that this package offers: arguments, template fields, a way through the database.

Arguments are checked by one rule as soon as they are known: with the DAG file, or when they are rendered. Requests and
the operators that send them are written twice, as types and as signatures: here they are compared.
"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from airflow.sdk import DAG, BaseOperator, ObjectStoragePath, XComArg, task
from airflow.serialization import serialized_objects

import airflow_provider_mail
from airflow_provider_mail.api import (
    MailRequest,
    campaigns,
    contacts,
    lists,
    senders,
    templates,
    transactional,
    webhooks,
)
from airflow_provider_mail.arguments import Brakes, ChangesOnly, Consent, FileFormat, Rejects, Suppress
from airflow_provider_mail.send_window import SendWindow
from airflow_provider_mail.transfers._base import CampaignStatus
from airflow_provider_mail.version_compat import AirflowFailException, BaseHook
from mail_emulator import Emulator
from tests.support.operator_parts import ARGUMENTS, SEEN_ARGUMENTS, checked, declared, unwrap
from tests.tasks.conftest import TASK, Run
from tests.tasks.everything import OPERATORS, offered

# fmt: off
CAMPAIGN = {"sender_mail": "news@example.com", "send_list_names": ["friends"], "subject": "a", "content": "<p>a</p>"}
COUNTED = {"mail_name": "a", "sent_count": 1, "open_count": 0, "click_count": 0}
TO_SQL = {"sql_conn_id": "warehouse"}
OF_NAME, OF_LIST, OF_SENDER = {"mail_name": "a"}, {"list_name": "friends"}, {"sender_email": "new.example.com"}
OF_CONTACT = {"contact_email": "ada@example.com"}
_NEEDED: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("MailCampaignSensor", "MailCancelCampaignOperator", "MailDeleteCampaignOperator",
                     "MailStatsSettledSensor"), OF_NAME),
    **dict.fromkeys(("MailCampaignStatsToSqlOperator", "MailCampaignsToSqlOperator", "MailReconcileEventsOperator",
                     "MailEventsToSqlOperator", "MailTransactionalStatsToSqlOperator"), TO_SQL),
    "MailCompareCampaignsOperator": {"stats_a": COUNTED, "stats_b": COUNTED},
    **dict.fromkeys(("MailCreateCampaignOperator", "MailPreflightOperator"), CAMPAIGN),
    **dict.fromkeys(("MailCreateListOperator", "MailDeleteListOperator"), OF_LIST),
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
    "MailStatsGateSensor": OF_NAME | {"max_hard_bounce": 0.02},
    "ObjectStorageToMailContactsOperator": {"path": "file:///people.csv"},
    "SqlToMailBatchOperator": {"sql_conn_id": "crm", "sql": "SELECT 1", "sender_mail": "news@example.com"},
    "SqlToMailReportOperator": {"sql_conn_id": "crm", "sql": "SELECT 1", "sender_mail": "news@example.com",
                                "subject": "a", "to": "ada@example.com"},
    "MailCampaignsToObjectStorageOperator": {"path": "file:///tmp/campaigns"},
    "MailContactsToObjectStorageOperator": OF_LIST | {"path": "file:///tmp/contacts"},
    "MailStatsToObjectStorageOperator": {"path": "file:///tmp/statistics"},
    "MailVerifySenderOperator": {"from_domain": "new.example.com", "selector": "mail"},
    "SqlToMailContactsOperator": {"sql_conn_id": "crm", "sql": "SELECT 1"},
}
NEEDED: dict[type[BaseOperator], dict[str, Any]] = {OPERATORS[name]: given for name, given in _NEEDED.items()}
"""The smallest arguments of each."""

LOCAL = {
    "MailCompareCampaignsOperator": "stats_a",
    "MailEventsToSqlOperator": "inbox_conn_id",
    "MailInboxSensor": "inbox_conn_id",
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
    described = dict(re.findall(r":param (\w+):((?:.*\n)(?:        .*\n)*)", documented))
    assert {name: "(templated)" in described[name] for name in parameters} == {
        name: name in kind.template_fields for name in parameters
    }

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
    assert values - set(kind.template_fields) <= {"consent", "ignore_differences"}
    assert made(kind)._arguments == tuple(types)  # type: ignore[attr-defined]


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


# --- values of arguments ---

NewDag = Callable[..., DAG]
Kind = type[BaseOperator]
WHOLE = {"mail_name": "spring", "id": 7}
Text = str | Mapping[str, str]

# fmt: off
TYPES: dict[Any, tuple[Any, Any]] = {
    bool: (True, 1), int: (2, 1.5), float: (1.0, "x"), float | timedelta: (timedelta(1), "x"), str: ("x", 5),
    datetime: (datetime(2026, 1, 1), "x"), tuple[int, timedelta]: ((3, timedelta(1)), (3, 7)),
    SendWindow: (SendWindow(), "x"), Brakes: (Brakes(), 5), Rejects: (Rejects(), {}), FileFormat: (FileFormat(), 5),
    Consent | Sequence[Consent]: (Consent(column="a", no=["1"]), "a"), Sequence[str | int | bool]: (["yes"], [1.5]),
    Suppress: (Suppress(table="staff"), "events"), ChangesOnly: (ChangesOnly(), True),
    Sequence[CampaignStatus]: (["complete"], [2]), Sequence[str]: (["x"], 5),
    Collection[str]: (["x"], 5), Mapping[str, bool]: ({}, 5), Mapping[str, str]: ({"a": "x"}, {"a": 5}),
    Mapping[str, Any] | Sequence[Mapping[str, Any]]: ({}, "x"),
    Mapping[str, Any]: ({}, 5), Sequence[Any] | Mapping[str, Any]: ([1], 5), ObjectStoragePath: ("x", 5),
    Mapping[str, str] | ObjectStoragePath: ("x", 5), Text | Sequence[Text]: ("ada@example.com", 5),
    Iterable[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]]: ([{}], 5),
    Iterable[Mapping[str, Any] | Sequence[Any]] | Callable[[], Iterable[Mapping[str, Any] | Sequence[Any]]]: ([{}], 5),
}
# fmt: on
"""A right and a wrong value of each type of an argument."""
CREATE, IMPORT, FROM_SQL, SEND, BATCH = (OPERATORS[name] for name in (
    "MailCreateCampaignOperator", "MailImportContactsOperator", "SqlToMailContactsOperator", "MailSendOperator",
    "MailSendBatchOperator",
))  # fmt: skip
GROUPS: tuple[type, ...] = (Brakes, ChangesOnly, Consent, FileFormat, Rejects, Suppress)
native_or_not = pytest.mark.parametrize("native", [False, True])


def rendered(kind: Kind, name: str, written: Any, value: Any, *, native: bool = False, **others: Any) -> Any:
    with DAG("arguments", schedule=None, render_template_as_native_obj=native):
        operator = made(kind, **{name: written} | others)
    operator.render_template_fields({"value": value})  # type: ignore[typeddict-item]
    operator.pre_execute({})
    return unwrap(getattr(operator, name))


def fails(words: str, *arguments: Any, **options: Any) -> None:
    with pytest.raises(AirflowFailException, match=f"^({words})"):
        rendered(*arguments, **options)


class Value:
    """A template of a value counts as the value."""

    def __class_getitem__(cls, value_type: Any) -> Any:
        return value_type


@every_kind
def test_the_rule_of_each_argument_is_that_of_its_type(kind: Kind) -> None:
    names = {"Templated": Value, "Unpack": Value, "ObjectStoragePath": ObjectStoragePath, "SendWindow": SendWindow}
    names |= {group.__name__: group for group in GROUPS}
    known = names | dict.fromkeys(("TaskArguments", "SensorArguments"), Any)
    types = get_type_hints(constructor(kind), localns=known)
    assert declared(kind).keys() == types.keys() - {"kwargs", "return"}
    for name, rule in declared(kind).items():
        variants = [types[name]] if get_origin(types[name]) is Literal else get_args(types[name]) or [types[name]]
        assert rule.optional == (NoneType in variants), name
        given = [variant for variant in variants if variant is not NoneType]
        if choices := get_args(given[0]) if get_origin(given[0]) is Literal else ():
            assert set(rule.choices) == set(choices), name
            continue
        right, wrong = TYPES[types[name] if types[name] in TYPES else reduce(or_, given)]
        assert rule.check(name, 0.95 if name == "confidence" else right) is None, name
        assert rule.problem(wrong), name


def test_each_rule_is_that_of_an_argument() -> None:
    of_groups = {name for group in GROUPS for name in declared(group)} - {"column", "name", "no", "yes"}
    assert ARGUMENTS.keys() <= of_groups | {name for kind in NEEDED for name in declared(kind)}


@native_or_not
def test_templates_in_a_group(native: bool) -> None:
    """They are rendered, checked and read as those of arguments; tasks whose results they contain go first."""
    rejects = Rejects(table="{{ value }}", max_fraction=0.5)
    assert rendered(FROM_SQL, "rejects", rejects, "20260131", native=native) == Rejects(
        table="20260131", max_fraction=0.5
    )
    fails("rejects.table: was given and resolves to nothing", FROM_SQL, "rejects", rejects, None, native=native)
    fails("rejects.table: one text is needed", FROM_SQL, "rejects", rejects, {"a": 1}, native=native)
    with DAG("groups", schedule=None):

        @task
        def something() -> str:
            return "something"

        output = something()
        group = Rejects(table=output)
        assert made(FROM_SQL, rejects=group).upstream_task_ids == {"something"}
        mapped = FROM_SQL.partial(task_id="mapped", sql_conn_id="crm", rejects=group).expand(sql=["SELECT 1"])
        assert mapped.upstream_task_ids == {"something"}
        given = {"rejects": group, "sql_conn_id": "crm"}
        each = FROM_SQL.partial(task_id="each", sql="SELECT 1", sql_conn_id="crm").expand(rejects=[Rejects(), group])
        both = FROM_SQL.partial(task_id="both", sql="SELECT 1").expand_kwargs([{"sql_conn_id": "crm"}, given])
        assert each.upstream_task_ids == both.upstream_task_ids == {"something"}
    assert Rejects(table="a", keep_days=5).serialize() == {"table": "a", "keep_days": 5}
    with pytest.raises(ValueError, match="keep_days: must be a number, more than 0, not 0"):
        Rejects(table="a", keep_days=0)


def test_durations_may_be_timedeltas() -> None:
    campaign: Any = made(CREATE, timeout=timedelta(hours=1), poke_interval=timedelta(minutes=2))
    assert (campaign.timeout, campaign.poke_interval) == (3600, 120)


@pytest.mark.parametrize(("kind", "native"), [*((kind, False) for kind in NEEDED), (CREATE, True), (FROM_SQL, True)])
def test_a_template_without_a_value_or_with_a_whole_result(kind: Kind, native: bool) -> None:
    arguments, fields = declared(kind), set(kind.template_fields)
    assert fields - {"start_from_trigger", "start_trigger_args"} <= arguments.keys()
    for name in fields & arguments.keys():
        may_be_blank = name in SEEN_ARGUMENTS and "allow_blank" in arguments
        if not may_be_blank and name not in ("rejects",):
            fails(f"{name}: was given and resolves to nothing", kind, name, "{{ value }}{{ '' }}", None, native=native)
        if constructor(kind).__annotations__[name].startswith(("Templated[str]", "Templated[ObjectStoragePath]")):
            for value, words in ((WHOLE, "the whole"), (["a", "b"], "a l")):
                words = f"{name}: one text is needed, not {words}|sql: one query"
                fails(words, kind, name, "{{ value }}", value, native=native)


@native_or_not
def test_none_in_a_longer_text_is_rejected_unless_allowed(native: bool) -> None:
    for kind, name, written in (
        (OPERATORS["MailCampaignSensor"], "mail_name", "news {{ value }}"),
        (CREATE, "send_list_names", ["friends", "friends of {{ value }}"]),
        (FROM_SQL, "columns", {"city": "city_{{ value }}"}),
        (FROM_SQL, "sql", "SELECT email FROM people WHERE city = '{{ value }}'"),
    ):
        fails(f"{name}: an expression of its template has no value", kind, name, written, None, native=native)
        rendered(kind, name, written, "None", native=native)
    hello = (CREATE, "subject", "Hello {{ value }}!", None)
    assert rendered(*hello, native=native, allow_blank=True) == "Hello None!"


@native_or_not
def test_text_and_lists_stay_what_they_are(native: bool) -> None:
    """Native rendering makes something else of such texts; the form of a trigger passes lists as JSON or Python."""
    for text in ("20260131", "1e5", "1_000", "'Ada'", "+4412345678", "True", "(1)"):
        for kind, name in ((SEND, "subject"), (FROM_SQL, "list_description")):
            assert rendered(kind, name, "{{ value }}", text, native=native) == text
        for kind, name, written in (
            (BATCH, "messages", [{"to": "a@example.com", "params": {"code": "{{ value }}"}}]),
            (IMPORT, "contacts", [{"email": "a@example.com", "phone_number": "{{ value }}"}]),
        ):
            assert repr(text) in repr(rendered(kind, name, written, text, native=native))
    for kind, name, value in (
        (IMPORT, "columns", {"mail": "email"}),
        (IMPORT, "column_names", ["email", "name"]),
        (SEND, "to", ["ada@example.com", "bob@example.com"]),
        (BATCH, "mail_params", {"name": "Ada", "items": [1, 2]}),
    ):
        for template in ("{{ value }}", "{{ value | tojson }}"):
            assert rendered(kind, name, template, value, native=native) == value


@native_or_not
def test_what_the_service_receives(run: Run, new_dag: NewDag, emulator: Emulator, native: bool) -> None:
    """Of text that looks like numbers, and of empty optional text."""
    hi = {"sender_mail": "news@example.com", "subject": "Hi", "content": "<p>Hi</p>", "reply_to": "", "category": ""}
    with new_dag(render_template_as_native_obj=native) as dag:
        OPERATORS["MailUpsertContactOperator"](
            task_id=TASK, contact_email="ada@example.com", phone_number="{{ '+' ~ 4412345678 }}", name="{{ '1e' ~ 5 }}"
        )
        SEND(task_id="one", to={"email": "ada@example.com", "name": "{{ '' }}"}, **hi)
    assert run(dag).result.state == "success"
    contact, message = (entry["body"] for entry in emulator.journal.entries())
    assert (contact["phoneNumber"], contact["name"]) == ("+4412345678", "1e5")
    assert message["to"] == {"email": "ada@example.com"}
    assert not {"replyTo", "category"} & message.keys()


def test_no_value_of_a_person_is_shown() -> None:
    for name in ("on_ambiguous", "to"):
        with pytest.raises(AirflowFailException) as raised:
            rendered(SEND, name, "{{ value }}", "Ada Lovelace, ada")
        assert "Ada" not in str(raised.value)


# --- requests ---

# fmt: off
REQUESTS: dict[str, type[MailRequest[Any]]] = {
    **dict.fromkeys(("MailContactsToObjectStorageOperator", "MailContactsToSqlOperator"), contacts.GetListContacts),
    **dict.fromkeys(("MailCampaignsToObjectStorageOperator", "MailCampaignsToSqlOperator"), campaigns.GetCampaigns),
    **dict.fromkeys(("MailCreateCampaignOperator", "MailPreflightOperator"), campaigns.CreateCampaign),
    **dict.fromkeys(("MailImportContactsOperator", "ObjectStorageToMailContactsOperator", "SqlToMailContactsOperator"),
                    contacts.ImportContacts),
    **dict.fromkeys(("MailSendBatchOperator", "SqlToMailBatchOperator"), transactional.SendBatch),
    "MailAddSenderOperator": senders.AddSender, "MailDeleteSenderOperator": senders.DeleteSender,
    "MailVerifySenderOperator": senders.VerifySender, "MailSaveWebhookOperator": webhooks.SaveWebhook,
    "MailCampaignStatsToSqlOperator": campaigns.GetCampaignStats,
    "MailTransactionalStatsToSqlOperator": transactional.GetTransactionalStats,
    "MailCancelCampaignOperator": campaigns.CancelCampaign, "MailDeleteCampaignOperator": campaigns.DeleteCampaign,
    "MailCreateListOperator": lists.AddList, "MailDeleteListOperator": lists.DeleteList,
    "MailCreateTemplateOperator": templates.AddTemplate, "MailDeleteTemplateOperator": templates.DeleteTemplate,
    "MailDeleteContactOperator": contacts.DeleteContact, "MailUpsertContactOperator": contacts.UpsertContact,
    "MailSendOperator": transactional.SendMail,
}

WITHOUT_REQUEST = {
    "MailCampaignSensor", "MailSenderSensor", "MailStatsSettledSensor", "MailStatsToObjectStorageOperator",
    "MailReconcileEventsOperator", "MailEventsToSqlOperator", "MailInboxSensor", "MailStatsGateSensor",
    "MailSendTestOperator", "MailCompareCampaignsOperator", "SqlToMailReportOperator",
}
"""They have no request of which users give the fields."""

GIVEN_OTHERWISE = {
    campaigns.GetCampaignStats: {"start_date": "start_day", "end_date": "end_day"},
    campaigns.GetCampaigns: {"page_index": None},
    contacts.DeleteContact: {"email": "contact_email"},
    contacts.GetListContacts: {"page_index": None},
    contacts.ImportContacts: {"contact_data": None, "contact_data_mapping": None},
    contacts.UpsertContact: {"email": "contact_email"},
    transactional.GetTransactionalStats: {"start_date": "start_day", "end_date": "end_day"},
    transactional.SendBatch: {"message_versions": None, "params": "mail_params", "unique_msg_id": None},
}
"""The fields that are not arguments of their name, with the argument of another name, if there is one."""

OWN_MEANING = {
    "MailCreateTemplateOperator": {"sandbox_mode"},  # true fails the task
    "MailDeleteTemplateOperator": {"sandbox_mode"},
    "MailPreflightOperator": {"template_name"},  # the content is compared with it
}
"""Arguments with the name of a field that the request does not have."""

WITH_A_DEFAULT = {(campaigns.CreateCampaign, "mail_name"), (contacts.ImportContacts, "update_mode")}
"""Required fields whose argument has a default."""
# fmt: on

FIELDS = {
    name
    for module in (campaigns, contacts, lists, senders, templates, transactional, webhooks)
    for request in vars(module).values()
    if inspect.isclass(request) and issubclass(request, MailRequest)
    for name in request.model_fields
}
LIMITS = {rule.limit for rule in ARGUMENTS.values()} - {None}

every_request = pytest.mark.parametrize(("operator", "request_type"), REQUESTS.items(), ids=REQUESTS)


def test_every_operator_is_compared() -> None:
    assert REQUESTS.keys() | WITHOUT_REQUEST == {kind.__name__ for kind in NEEDED}


@every_request
def test_each_field_of_the_request_is_an_argument(operator: str, request_type: type[MailRequest[Any]]) -> None:
    fields, otherwise = request_type.model_fields, GIVEN_OTHERWISE.get(request_type, {})
    rules, parameters = declared(OPERATORS[operator]), arguments(OPERATORS[operator])
    assert fields.keys() - parameters.keys() == otherwise.keys()
    assert {name for name in otherwise.values() if name} <= parameters.keys()
    for name in fields.keys() & parameters.keys():
        is_required = parameters[name].default is inspect.Parameter.empty
        assert is_required == (fields[name].is_required() and (request_type, name) not in WITH_A_DEFAULT), name
        written = next(base.__annotations__[name] for base in request_type.__mro__ if name in base.__annotations__)
        for limit in LIMITS.intersection(re.findall(r"\w+", written)):
            assert rules[name].limit == limit, name


@every_request
def test_each_argument_named_as_a_field_is_one(operator: str, request_type: type[MailRequest[Any]]) -> None:
    not_sent = FIELDS.intersection(arguments(OPERATORS[operator])) - request_type.model_fields.keys()
    assert not_sent == OWN_MEANING.get(operator, set())


def test_an_argument_without_a_rule_says_where_it_is_added() -> None:
    def function(*, mail_name: str, color: bytes) -> None: ...

    with pytest.raises(TypeError, match=r"color: no rule says which values .*function takes; add it to ARGUMENTS in "):
        checked()(function)
