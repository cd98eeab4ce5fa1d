"""Arguments are checked by one rule as soon as they are known: with the DAG file, or when they are rendered."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from airflow.sdk import DAG, BaseOperator, ObjectStoragePath
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator, MailUpsertContactOperator
from airflow_provider_mail.operators.senders import MailAddSenderOperator
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.send_window import SendWindow
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from airflow_provider_mail.version_compat import AirflowFailException
from mail_emulator import Emulator
from tests.support.operator_parts import ARGUMENTS, PLAIN_TEXTS, SEEN_ARGUMENTS, declared, unwrap, validator
from tests.tasks.conftest import TASK, Run
from tests.tasks.test_operators import NEEDED, constructor, every_kind, made

NewDag = Callable[..., DAG]
Kind = type[BaseOperator]
WHOLE = {"mail_name": "spring", "id": 7}
Text = str | Mapping[str, str]

# fmt: off
TYPES: dict[Any, tuple[Any, Any]] = {
    bool: (True, 1), int: (2, 1.5), float: (1.0, "x"), float | timedelta: (timedelta(1), "x"), str: ("x", 5),
    datetime: (datetime(2026, 1, 1), "x"),
    SendWindow: (SendWindow(), "x"), Sequence[int]: ([1], ["x"]), Sequence[str]: (["x"], 5),
    Collection[str]: (["x"], 5), Mapping[str, bool]: ({}, 5), Mapping[str, str]: ({"a": "x"}, {"a": 5}),
    Mapping[str, Any] | Sequence[Mapping[str, Any]]: ({}, "x"),
    Mapping[str, Any]: ({}, 5), Sequence[Any] | Mapping[str, Any]: ([1], 5), ObjectStoragePath: ("x", 5),
    Mapping[str, str] | ObjectStoragePath: ("x", 5), Text | Sequence[Text]: ("ada@example.com", 5),
    Iterable[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]]: ([{}], 5),
    Iterable[Mapping[str, Any] | Sequence[Any]] | Callable[[], Iterable[Mapping[str, Any] | Sequence[Any]]]: ([{}], 5),
}
# fmt: on
"""A right and a wrong value of each type of an argument."""

native_or_not = pytest.mark.parametrize("native", [False, True])


def rendered(kind: Kind, name: str, written: Any, value: Any, *, native: bool = False, **others: Any) -> Any:
    with DAG("arguments", schedule=None, render_template_as_native_obj=native):
        operator = made(kind, **{name: written} | others)
    operator.render_template_fields({"value": value})  # type: ignore[typeddict-item]
    operator.pre_execute({})
    return unwrap(operator, getattr(operator, name), {})


def fails(words: str, *arguments: Any, **options: Any) -> None:
    with pytest.raises(AirflowFailException, match=f"^({words})"):
        rendered(*arguments, **options)


@hypothesis_given(st.sampled_from(sorted(PLAIN_TEXTS)), st.data())
def test_every_plain_text_is_valid(kind: str, data: st.DataObject) -> None:
    validator(kind).validate_python(data.draw(st.from_regex(PLAIN_TEXTS[kind], fullmatch=True)))


class Value:
    """A template of a value counts as the value."""

    def __class_getitem__(cls, value_type: Any) -> Any:
        return value_type


@every_kind
def test_the_rule_of_each_argument_is_that_of_its_type(kind: Kind) -> None:
    names = {
        "Templated": Value, "ObjectStoragePath": ObjectStoragePath, "Unpack": Value, "SendWindow": SendWindow,
    }  # fmt: skip
    known = names | dict.fromkeys(("TaskArguments", "SensorArguments"), Any)
    types = get_type_hints(constructor(kind), localns=known)
    assert declared(kind).keys() == types.keys() - {"kwargs", "return"}
    for name, argument in declared(kind).items():
        variants = [types[name]] if get_origin(types[name]) is Literal else get_args(types[name]) or [types[name]]
        assert argument.optional == (NoneType in variants), name
        given = [variant for variant in variants if variant is not NoneType]
        if choices := get_args(given[0]) if get_origin(given[0]) is Literal else ():
            assert set(argument.rule.choices) == set(choices), name
            continue
        right, wrong = TYPES[types[name] if types[name] in TYPES else reduce(or_, given)]
        assert argument.rule.check(name, 0.95 if name == "confidence" else right) is None, name
        assert argument.problem(wrong), name


def test_each_rule_is_that_of_an_argument() -> None:
    assert ARGUMENTS.keys() == {name for kind in NEEDED for name in declared(kind)}


# fmt: off
@pytest.mark.parametrize(("kind", "arguments", "words"), [
    (MailImportContactsOperator, {"contacts": ["a@example.com"]},
     "contacts: item 0 must be a dictionary such as {"),
    (MailImportContactsOperator, {"contacts": {"email": "a@example.com"}}, "contacts: a list of rows is needed"),
    (SqlToMailContactsOperator, {"sql_conn_id": ""}, "sql_conn_id: is empty"),
    (MailUpsertContactOperator, {"contact_email": "nobody"}, "contact_email: is not an email address"),
    (MailUpsertContactOperator, {"phone_number": "call me"}, "phone_number: is not a phone number"),
    (MailSendOperator, {"to": ["a@example.com", "nobody"]}, "to: recipient 1: is not an email address"),
    (MailSendOperator, {"cc": "a@example.com"}, "cc: use MailSendBatchOperator"),
    (MailCreateTemplateOperator, {"template_subject": ""}, "template_subject: is missing"),
    (MailAddSenderOperator, {"sender_type": 3}, "sender_type: must be a whole number from 1 to 2, not 3"),
    (MailCampaignSensor, {"mail_name": ["a", "b"]}, "mail_name: one text is needed, not a list. For "),
    (MailCampaignSensor, {"mail_name": " "}, "mail_name: is blank"),
])
def test_wrong_values_in_the_dag_file_break_it(kind: Kind, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(words)}"):
        made(kind, **arguments)
# fmt: on


def test_durations_may_be_timedeltas() -> None:
    waiting = {"wait_for_completion": True, "timeout": timedelta(hours=1), "poke_interval": timedelta(minutes=2)}
    campaign = made(MailCreateCampaignOperator, **waiting)
    assert (campaign.timeout, campaign.poke_interval) == (3600, 120)  # type: ignore[attr-defined]


@every_kind
@native_or_not
def test_a_template_without_a_value_or_with_a_whole_result(kind: Kind, native: bool) -> None:
    arguments, fields = declared(kind), set(kind.template_fields)
    assert fields - {"start_from_trigger", "start_trigger_args"} <= arguments.keys()
    for name in fields & arguments.keys():
        rule = arguments[name].rule
        may_be_blank = name in SEEN_ARGUMENTS and "allow_blank" in arguments
        if not may_be_blank and (rule.text or not native):
            fails(f"{name}: its template rendered to None", kind, name, "{{ value }}{{ '' }}", None, native=native)
        if constructor(kind).__annotations__[name].startswith(("Templated[str]", "Templated[ObjectStoragePath]")):
            for value, words in ((WHOLE, "the whole"), (["a", "b"], "a l")):
                words = f"{name}: one text is needed, not {words}|sql: one query"
                fails(words, kind, name, "{{ value }}", value, native=native)


@native_or_not
def test_none_in_a_longer_text_is_rejected_unless_allowed(native: bool) -> None:
    for kind, name, written in (
        (MailCampaignSensor, "mail_name", "news {{ value }}"),
        (MailCreateCampaignOperator, "send_list_names", ["friends", "friends of {{ value }}"]),
        (SqlToMailContactsOperator, "columns", {"city": "city_{{ value }}"}),
        (SqlToMailContactsOperator, "sql", "SELECT email FROM people WHERE city = '{{ value }}'"),
    ):
        fails(f"{name}: an expression of its template has no value", kind, name, written, None, native=native)
        rendered(kind, name, written, "None", native=native)
    hello = (MailCreateCampaignOperator, "subject", "Hello {{ value }}!", None)
    assert rendered(*hello, native=native, allow_blank=True) == "Hello None!"


@native_or_not
def test_text_and_lists_stay_what_they_are(native: bool) -> None:
    """Native rendering makes something else of such texts; the form of a trigger passes lists as JSON or Python."""
    for text in ("20260131", "1e5", "1_000", "'Ada'", "+4412345678", "True", "(1)"):
        for kind, name in ((MailSendOperator, "subject"), (SqlToMailContactsOperator, "rejects_path")):
            assert rendered(kind, name, "{{ value }}", text, native=native) == text
        for kind, name, written in (
            (MailSendBatchOperator, "messages", [{"to": "a@example.com", "params": {"code": "{{ value }}"}}]),
            (MailImportContactsOperator, "contacts", [{"email": "a@example.com", "phone_number": "{{ value }}"}]),
        ):
            assert repr(text) in repr(rendered(kind, name, written, text, native=native))
    for kind, name, value in (
        (MailImportContactsOperator, "columns", {"mail": "email"}),
        (MailImportContactsOperator, "column_names", ["email", "name"]),
        (MailSendOperator, "to", ["ada@example.com", "bob@example.com"]),
        (MailSendBatchOperator, "mail_params", {"name": "Ada", "items": [1, 2]}),
    ):
        for template in ("{{ value }}", "{{ value | tojson }}"):
            assert rendered(kind, name, template, value, native=native) == value


@native_or_not
def test_what_the_service_receives(run: Run, new_dag: NewDag, emulator: Emulator, native: bool) -> None:
    """Of text that looks like numbers, and of empty optional text."""
    hi = {"sender_mail": "news@example.com", "subject": "Hi", "content": "<p>Hi</p>", "reply_to": "", "category": ""}
    with new_dag(render_template_as_native_obj=native) as dag:
        MailUpsertContactOperator(
            task_id=TASK, contact_email="ada@example.com", phone_number="{{ '+' ~ 4412345678 }}", name="{{ '1e' ~ 5 }}"
        )
        MailSendOperator(task_id="one", to={"email": "ada@example.com", "name": "{{ '' }}"}, **hi)
    assert run(dag).result.state == "success"
    contact, message = (entry["body"] for entry in emulator.journal.entries())
    assert (contact["phoneNumber"], contact["name"]) == ("+4412345678", "1e5")
    assert message["to"] == {"email": "ada@example.com"}
    assert not {"replyTo", "category"} & message.keys()


def test_no_value_of_a_person_is_shown() -> None:
    for name in ("on_ambiguous", "to"):
        with pytest.raises(AirflowFailException) as raised:
            rendered(MailSendOperator, name, "{{ value }}", "Ada Lovelace, ada")
        assert "Ada" not in str(raised.value)
