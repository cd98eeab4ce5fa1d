"""Arguments are checked by one rule as soon as they are known: with the DAG file, or when they are rendered."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, task
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from airflow_provider_mail._task.arguments import unwrap
from airflow_provider_mail._task.literals import _PLAIN, SEEN_ARGUMENTS, _validator, declared
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator, MailUpsertContactOperator
from airflow_provider_mail.operators.senders import MailAddSenderOperator
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.sensors.campaigns import MailCampaignSensor
from airflow_provider_mail.sensors.stats import MailStatsSettledSensor
from airflow_provider_mail.transfers.mail_to_sql import MailCampaignsToSqlOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailContactsOperator
from airflow_provider_mail.version_compat import AirflowFailException
from tests.tasks.conftest import TASK, Run
from tests.tasks.test_operators import every_kind, made

NewDag = Callable[..., DAG]
WHOLE = {"mail_name": "spring", "id": 7}
# What Airflow's native rendering makes something else of.
TEXTS = ["20260131", "1e5", "1_000", "'Ada'", "+4412345678", "True", "(1)"]


def rendered(new_dag: NewDag, kind: type[BaseOperator], name: str, written: Any, value: Any, *, native: bool) -> Any:
    with new_dag(render_template_as_native_obj=native):
        operator = made(kind, **{name: written})
    operator.render_template_fields({"value": value})  # type: ignore[typeddict-item]
    operator.pre_execute({})
    return unwrap(operator, getattr(operator, name), {})


@pytest.fixture
def any_number_of_dags() -> NewDag:
    numbers = iter(range(10_000))
    return lambda **options: DAG(f"arguments.{next(numbers)}", schedule=None, **options)


@hypothesis_given(st.sampled_from(sorted(_PLAIN)), st.data())
def test_what_is_certainly_right_is_right(kind: str, data: st.DataObject) -> None:
    _validator(kind).validate_python(data.draw(st.from_regex(_PLAIN[kind], fullmatch=True)))


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        (
            MailImportContactsOperator,
            {"contacts": ["a@example.com"]},
            "contacts: item 0 must be a dictionary such as {",
        ),
        (MailImportContactsOperator, {"contacts": {"email": "a@example.com"}}, "contacts: a list of rows is needed"),
        (MailImportContactsOperator, {"columns": {"email": "Email"}}, "columns: neither email nor phoneNumber"),
        (MailImportContactsOperator, {"columns": {"n": None}}, "columns: 'n': text is needed, not nothing. Leave out"),
        (SqlToMailContactsOperator, {"sql": ["SELECT 1", "SELECT 2"]}, "sql: one query as text is needed, not a list"),
        (SqlToMailContactsOperator, {"sql_conn_id": ""}, "sql_conn_id: is empty"),
        (MailUpsertContactOperator, {"contact_email": "nobody"}, "contact_email: is not an email address"),
        (MailUpsertContactOperator, {"phone_number": "call me"}, "phone_number: is not a phone number"),
        (MailSendOperator, {"to": ["a@example.com", "nobody"]}, "to: recipient 1: is not an email address"),
        (MailSendOperator, {"template_name": "welcome"}, "template_name: use MailSendBatchOperator"),
        (MailSendOperator, {"cc": "a@example.com"}, "cc: use MailSendBatchOperator"),
        (MailCreateTemplateOperator, {"template_subject": ""}, "template_subject: is missing"),
        (MailAddSenderOperator, {"sender_type": 3}, "sender_type: must be a whole number from 1 to 2, not 3"),
        (MailCampaignsToSqlOperator, {"type": "maillist"}, "type: 'maillist' is none of MailList, ABTest"),
        (
            MailCampaignSensor,
            {"mail_name": ["a", "b"]},
            "mail_name: one text is needed, not a list. For ",
        ),
        (MailCampaignSensor, {"mail_name": " "}, "mail_name: is blank"),
        (MailCampaignsToSqlOperator, {"mail_status": ["sent"]}, "mail_status: whole numbers are needed"),
    ],
)
def test_what_is_wrong_in_the_dag_file_breaks_it(
    kind: type[BaseOperator], arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(words)}"):
        made(kind, **arguments)


def test_durations_may_be_timedeltas() -> None:
    waiting = {"wait_for_completion": True, "timeout": timedelta(hours=1), "poke_interval": timedelta(minutes=2)}
    campaign = made(MailCreateCampaignOperator, **waiting)
    assert (campaign.timeout, campaign.poke_interval) == (3600, 120)  # type: ignore[attr-defined]


@every_kind
def test_every_argument_has_a_declared_type(kind: type[BaseOperator]) -> None:
    fields = {"start_from_trigger", "start_trigger_args"}
    assert set(kind.template_fields) - fields <= set(declared(kind))


@every_kind
@pytest.mark.parametrize("native", [False, True])
def test_what_renders_to_none_is_not_meant(any_number_of_dags: NewDag, kind: type[BaseOperator], native: bool) -> None:
    arguments = declared(kind)
    for name in set(kind.template_fields) & set(arguments):
        if (name in SEEN_ARGUMENTS and "allow_blank" in arguments) or (native and not arguments[name].kind.text):
            continue
        with pytest.raises(AirflowFailException, match=f"^{name}: its template rendered to None"):
            rendered(any_number_of_dags, kind, name, "{{ value }}{{ '' }}", None, native=native)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("kind", "name", "written"),
    [
        (MailCampaignSensor, "mail_name", "news {{ value }}"),
        (MailCreateCampaignOperator, "send_list_names", ["friends", "friends of {{ value }}"]),
        (SqlToMailContactsOperator, "columns", {"city": "city_{{ value }}"}),
        (SqlToMailContactsOperator, "sql", "SELECT email FROM people WHERE city = '{{ value }}'"),
    ],
)
def test_none_in_a_longer_text_is_not_meant(
    any_number_of_dags: NewDag, kind: type[BaseOperator], name: str, written: Any, native: bool
) -> None:
    with pytest.raises(AirflowFailException, match=f"^{name}: an expression of its template has no value"):
        rendered(any_number_of_dags, kind, name, written, None, native=native)
    rendered(any_number_of_dags, kind, name, written, "None", native=native)


def test_none_in_a_longer_text_may_be_allowed(any_number_of_dags: NewDag) -> None:
    allowed = {"allow_blank": True, "subject": "Hello {{ value }}!"}
    with any_number_of_dags():
        operator = made(MailCreateCampaignOperator, **allowed)
    operator.render_template_fields({"value": None})  # type: ignore[typeddict-item]
    operator.pre_execute({})
    assert operator.subject == "Hello None!"  # type: ignore[attr-defined]


@every_kind
@pytest.mark.parametrize("native", [False, True])
def test_the_whole_result_of_a_task_is_no_text(
    any_number_of_dags: NewDag, kind: type[BaseOperator], native: bool
) -> None:
    for name, argument in declared(kind).items():
        if argument.kind.text and not argument.kind.container and not argument.choices and name in kind.template_fields:
            for value, words in (
                (WHOLE, "one text is needed, not the whole"),
                (["a", "b"], "one text is needed, not a l"),
            ):
                with pytest.raises(AirflowFailException, match=f"^{name}: {words}|^sql: one query"):
                    rendered(any_number_of_dags, kind, name, "{{ value }}", value, native=native)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (MailUpsertContactOperator, "name"),
        (MailSendOperator, "subject"),
        (SqlToMailContactsOperator, "list_name"),
        (SqlToMailContactsOperator, "rejects_path"),
    ],
)
def test_text_stays_text(
    any_number_of_dags: NewDag, kind: type[BaseOperator], name: str, text: str, native: bool
) -> None:
    assert rendered(any_number_of_dags, kind, name, "{{ value }}", text, native=native) == text


@pytest.mark.parametrize("text", TEXTS)
def test_text_inside_stays_text(any_number_of_dags: NewDag, text: str) -> None:
    for kind, name, given in (
        (MailSendBatchOperator, "mail_params", {"code": "{{ value }}"}),
        (MailSendBatchOperator, "messages", [{"to": "a@example.com", "params": {"code": "{{ value }}"}}]),
        (MailImportContactsOperator, "contacts", [{"email": "a@example.com", "phone_number": "{{ value }}"}]),
    ):
        seen = rendered(any_number_of_dags, kind, name, given, text, native=True)
        assert repr(text) in repr(seen)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (MailImportContactsOperator, "columns", {"mail": "email"}),
        (MailImportContactsOperator, "column_names", ["email", "name"]),
        (MailSendOperator, "to", ["ada@example.com", "bob@example.com"]),
        (MailSendOperator, "service_tags", ["name"]),
        (MailSendBatchOperator, "mail_params", {"name": "Ada", "items": [1, 2]}),
    ],
)
def test_a_list_from_a_trigger_form_is_a_list(
    any_number_of_dags: NewDag, kind: type[BaseOperator], name: str, value: Any, native: bool
) -> None:
    for template in ("{{ value }}", "{{ value | tojson }}"):
        assert rendered(any_number_of_dags, kind, name, template, value, native=native) == value


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("kind", [MailCampaignSensor, MailStatsSettledSensor])
@pytest.mark.parametrize("written", ["output", "template"])
def test_a_sensor_does_not_wait_for_the_whole_result_of_a_task(
    run: Run, new_dag: NewDag, emulator: Emulator, kind: type[BaseOperator], written: str, native: bool
) -> None:
    with new_dag(render_template_as_native_obj=native) as dag:

        @task
        def create() -> dict[str, Any]:
            return WHOLE

        created = create()
        given = created if written == "output" else "{{ ti.xcom_pull('create') }}"
        created >> kind(task_id=TASK, mail_name=given, retries=2)
    done = run(dag)

    assert (done.state, done.tries) == ("failed", 1)
    assert "Write mail_name=task.output['mail_name']" in done.log
    assert emulator.journal.count() == 0


@pytest.mark.parametrize("native", [False, True])
def test_what_the_service_receives_of_a_contact(run: Run, new_dag: NewDag, emulator: Emulator, native: bool) -> None:
    with new_dag(render_template_as_native_obj=native) as dag:
        MailUpsertContactOperator(
            task_id=TASK, contact_email="ada@example.com", phone_number="{{ '+' ~ 4412345678 }}", name="{{ '1e' ~ 5 }}"
        )
    assert run(dag).state == "success"

    (entry,) = emulator.journal.entries("contacts/upsert")
    assert (entry["body"]["phoneNumber"], entry["body"]["name"]) == ("+4412345678", "1e5")


def test_no_value_of_a_person_is_shown(any_number_of_dags: NewDag) -> None:
    for name in ("on_ambiguous", "to"):
        with pytest.raises(AirflowFailException) as raised:
            rendered(any_number_of_dags, MailSendOperator, name, "{{ value }}", "Ada Lovelace, ada", native=False)
        assert "Ada" not in str(raised.value)


@pytest.mark.parametrize("to", [{"email": "ada@example.com", "name": "{{ '' }}"}, "ada@example.com"])
def test_the_name_of_a_recipient_and_an_address_for_replies_may_be_empty(run: Run, emulator: Emulator, to: Any) -> None:
    given = {"sender_mail": "news@example.com", "subject": "Hi", "content": "<p>Hi</p>", "reply_to": "", "category": ""}
    assert run(lambda: MailSendOperator(task_id=TASK, to=to, **given)).state == "success"

    (message,) = emulator.journal.entries("transactional/mail/sends_customised")
    assert message["body"]["to"] == {"email": "ada@example.com"}
    assert not {"replyTo", "category"} & message["body"].keys()
