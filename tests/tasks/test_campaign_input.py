"""Bad input to `MailCreateCampaignOperator` is an error that names the argument, before anything is sent."""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from airflow.sdk import DAG, Param, task
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st
from jinja2 import DebugUndefined, StrictUndefined, Undefined

from airflow_provider_mail._task.rules import list_names
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.operators import campaigns
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Run
from tests.tasks.sending import CAMPAIGN, campaign

NewDag = Callable[..., DAG]
SENDS = "campaign/mail/sends"
on_both = pytest.mark.parametrize("native", [False, True])


@pytest.fixture(autouse=True)
def _newsletter(emulator: Emulator) -> None:
    emulator.add_list("newsletter", ["ada@example.com"])


def create(**arguments: Any) -> MailCreateCampaignOperator:
    return campaign(**{"retries": 2} | arguments)


def sent(emulator: Emulator) -> list[dict[str, Any]]:
    return [entry["body"] for entry in emulator.journal.entries(SENDS)]


def _name(value: object) -> str:
    return "-".join(value) if isinstance(value, dict) else ""


# --- with the DAG file ---


@pytest.mark.parametrize(("arguments", "words"), [
    ({"send_date": datetime.datetime(2030, 1, 1)}, "send_date: "),
    ({"send_date": "2030-01-01"}, "send_date: not an ISO 8601 date and time"),
    ({"send_date": 20300101}, "send_date: must be a datetime or ISO 8601 text"),
    ({"editor_type": "classic"}, "editor_type: 'classic' is none of CLASSIC, DRAG"),
    ({"mail_name": 5}, "mail_name: text is needed, not int"),
    ({"send_list_names": ["a", 1]}, "send_list_names: item 1 must be text, not int"),
    ({"repel_list_names": {"staff": 1}}, "repel_list_names: one text is needed, not the whole result"),
    ({"sender_mail": None}, "sender_mail: is missing"),
    ({"reply_to": "Ada <ada@example.com>"}, "reply_to: is not an email address"),
    ({"only_save": "{{ params.draft }}"}, "only_save: True or False is needed"),
    ({"subject": None, "content": ""}, "subject: is missing; give it, or set allow_blank=True; content: "),
    ({"attachment": {"file_name": "a.pdf"}}, "attachment: a dictionary needs file_name and file_data"),
    ({"attachment": {"file_name": "a", "file_data": "", "size": "3"}}, "attachment: a dictionary needs"),
    ({"on_incomplete": "delete"}, "on_incomplete: 'delete' is none of cancel, keep, fail"),
    ({"on_incomplete": "keep"}, "on_incomplete: 'keep' needs wait_for_completion=True (or only_save=True)"),
    ({"cancel_on_kill": True}, "cancel_on_kill: needs wait_for_completion=True"),
], ids=_name)  # fmt: skip
def test_what_is_wrong_in_the_dag_file_breaks_it(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        create(**arguments)
    if not {"subject", "on_incomplete", "cancel_on_kill"} & arguments.keys():  # which depend on others
        with pytest.raises(ValueError, match=re.escape(words)):
            MailCreateCampaignOperator.partial(task_id=TASK, **arguments)


def test_what_is_right_in_the_dag_file(monkeypatch: pytest.MonkeyPatch, new_dag: NewDag) -> None:
    create(on_incomplete="keep", wait_for_completion=True, cancel_on_kill=True)
    create(on_incomplete="keep", only_save=True)
    create(on_incomplete="cancel")
    with new_dag(default_args={"deferrable": True}):
        create()
        # What a mapped task is given later is not missing.
        MailCreateCampaignOperator.partial(task_id="each", sender_mail="news@example.com").expand(
            send_list_names=[["a"], ["b"]]
        )
    monkeypatch.setattr(campaigns, "DEFERRABLE", True)
    create(deferrable=True)


def test_what_is_wrong_in_a_mapped_task(new_dag: NewDag) -> None:
    partial = MailCreateCampaignOperator.partial
    naive = datetime.datetime(2030, 1, 1)
    with new_dag():
        with pytest.raises(ValueError, match="send_date: "):
            partial(task_id="each", **CAMPAIGN).expand(send_date=[None, naive])
        with pytest.raises(ValueError, match="send_date: "):
            partial(task_id="some", **CAMPAIGN).expand_kwargs([{}, {"send_date": naive}])
        partial(task_id="right", **CAMPAIGN).expand_kwargs([{"send_date": None}])


# --- when the task runs ---

NO_VALUE = "an expression of its template has no value"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"send_date": "{{ '' }}"}, "send_date: not an ISO 8601 date and time"),
    ({"send_list_names": ["{{ '' }}"]}, "send_list_names: item 0 is empty"),
    ({"send_list_names": "{{ [1] }}"}, "send_list_names: item 0 must be text, not int"),
    ({"attachment": {"file_name": "a.pdf", "file_data": "ÄÄ"}}, "file_data: not Base64"),
    ({"attachment": "/"}, "attachment: name one file, this is a folder"),
    # What renders to nothing is not mailed.
    ({"subject": "{{ '\u200b ' }}"}, "subject: is blank"),
    ({"content": "<p>&nbsp;</p><!-- {{ ds_nodash }} -->"}, "content: shows nothing"),
    ({"sender_name": "{{ ti.xcom_pull('nothing') }}"}, "sender_name: is the text 'None'"),
    ({"sender_name": "{{ '' }}"}, "sender_name: is empty"),
    ({"reply_to": "{{ none }}"}, "reply_to: is the text 'None'"),
    ({"attachment": {"file_name": "a.txt", "file_data": "{{ none }}"}}, "attachment.file_data: is the text 'None'"),
    ({"subject": "{{ 'Hello ' ~ ti.xcom_pull('nothing') ~ '!' }}"}, f"subject: {NO_VALUE}"),
    ({"subject": "Hello {{ ti.xcom_pull('nothing') | trim or 'friend' }}"}, f"subject: {NO_VALUE}"),
    ({"subject": "{% set text = 'Hello ' ~ none %}{{ text }}"}, f"subject: {NO_VALUE}"),
    ({"content": "<p>{% for a in [1, none] %}{{ a }}{% endfor %}</p>"}, f"content: {NO_VALUE}"),
    ({"content": "<p>{% set x = 'nan' %}{{ x | float }}</p>"}, f"content: {NO_VALUE}"),
    ({"attachment": {"file_name": "{{ none }}.txt", "file_data": "QQ=="}}, f"attachment: {NO_VALUE}"),
    ({"send_list_names": ["a", "{{ none }} b"]}, f"send_list_names: {NO_VALUE}"),
    ({"repel_list_names": ["{{ ti.xcom_pull('nothing') }}"]}, f"repel_list_names: {NO_VALUE}"),
    ({"repel_list_names": "{{ var.value.get('left', '') }}"}, "repel_list_names: its template rendered to"),
]


@on_both
def test_what_is_wrong_when_the_task_runs(
    new_dag: NewDag, run: Run, emulator: Emulator, errors: list[BaseException], native: bool
) -> None:
    with new_dag(render_template_as_native_obj=native) as dag:
        for number, (arguments, _) in enumerate(WRONG):
            create(task_id=f"task{number}", **arguments)
    done = run(dag)

    assert {(task.state, task.try_number) for task in done.result.tasks.values()} == {("failed", 1)}
    said = zip(WRONG, map(str, errors), strict=True)
    assert native or [(words, text) for (_, words), text in said if words not in text] == []
    assert emulator.journal.count() == 0


@on_both
def test_none_of_another_task(run: Run, new_dag: NewDag, emulator: Emulator, native: bool) -> None:
    names = ("subject", "content", "sender_name")
    with new_dag(render_template_as_native_obj=native) as dag:
        nothing = task(lambda: None, task_id="nothing")()
        for name in names:
            nothing >> create(task_id=name, mail_name=name, **{name: "{{ ti.xcom_pull('nothing') }}"})
            create(task_id=f"{name}_output", mail_name=f"{name} 2", **{name: nothing})
    done = run(dag)

    assert done.result.state == "failed"
    assert [name for name in names if done.log.count(f"{name}: is None; nothing was sent") < 1 + native] == []
    assert emulator.journal.count(SENDS) == 0


def test_what_is_meant_is_mailed(run: Run, emulator: Emulator) -> None:
    meant: list[dict[str, Any]] = [
        {"subject": "None"},
        {"subject": "{{ none }}", "content": "<p></p>", "allow_blank": True},
        {"subject": "{{ '' }}", "content": "{{ none }}", "only_save": True},
        {"content": "<img src='news.png'>"},
        {"subject": "Hello {{ none }}", "allow_blank": True},
        {"subject": "Hello {{ none }}", "only_save": True},
        {"subject": "Hello {% if none %}{{ none }}{% endif %}{{ none | default('', true) | upper }} None"},
        {"repel_list_names": "{{ [] }}"},
    ]

    def tasks() -> None:
        for number, arguments in enumerate(meant):
            create(task_id=f"task{number}", mail_name=f"{number}", **arguments)

    assert run(tasks).state == "success"
    assert emulator.journal.count(SENDS) == len(meant)


@on_both
@pytest.mark.parametrize("undefined", [StrictUndefined, Undefined])
def test_what_is_compared_or_has_a_default_is_not_shown(
    run: Run, new_dag: NewDag, emulator: Emulator, undefined: Any, native: bool
) -> None:
    parts = [
        "{% if params.vip | lower == 'true' %}VIP{% endif %}",
        "{{ 'VIP' if params.vip | string | lower == 'true' else 'you' }}",
        "{% set vip = params.vip | lower %}{{ 'VIP' if vip == 'true' else 'and' }}",
        "{{ params.vip | trim | replace('None', 'all') }}",
        "{{ params.vip | string | length }}",
        *(["{{ (unknown | title) or 'x' }}", "{{ unknown | trim | d('y', true) }}"] if undefined is Undefined else []),
    ]
    options = {"template_undefined": undefined, "render_template_as_native_obj": native}
    with new_dag(params={"vip": Param(None)}, **options) as dag:
        create(subject=" ".join(["Hello", *parts]))

    assert run(dag).state == "success"
    assert sent(emulator)[0]["subject"].split()[:5] == ["Hello", "you", "and", "all", "4"]


# --- the service's tags and Airflow's templates are both written with two braces ---


@pytest.mark.parametrize("undefined", [Undefined, DebugUndefined])
def test_raw_tags_and_those_of_other_tasks_reach_the_service(
    run: Run, new_dag: NewDag, emulator: Emulator, undefined: Any
) -> None:
    """And undefined names, in a DAG whose undefined names are tags."""
    raw = "{% raw %}Hello {{name}}, {{ first_name }}{% endraw %}, today is {{ params.day }}"
    with new_dag(params={"day": "Monday"}, template_undefined=undefined) as dag:
        create(task_id="raw", subject=raw, content=task(lambda: "<p>Hello {{name}}</p>", task_id="page")())
        create(mail_name="undefined", subject="Hello {{ name }}", content="<p>{{ name ~ '!' }}</p>")
    assert run(dag).state == ("success" if undefined is DebugUndefined else "failed")

    found = {body["mailName"]: (body["subject"], body["content"]) for body in sent(emulator)}
    assert found["spring"] == ("Hello {{name}}, {{ first_name }}, today is Monday", "<p>Hello {{name}}</p>")
    assert ("undefined" in found) == (undefined is DebugUndefined)


# --- names of lists ---


@pytest.mark.parametrize(
    "given", [None, "{{ params.lists }}", "{{ params.lists | tojson }}", " {{ params.lists | list }} "]
)
@on_both
def test_lists_from_a_trigger_form(run: Run, new_dag: NewDag, emulator: Emulator, given: Any, native: bool) -> None:
    lists = ["newsletter", "it's [new], ok"]
    for name in (lists[1], "left"):
        emulator.add_list(name)
    with new_dag(params={"lists": lists, "repel": "left"}, render_template_as_native_obj=native) as dag:
        create(send_list_names=given or lists, repel_list_names="{{ params.repel }}")

    assert run(dag).state == "success"
    (body,) = sent(emulator)
    assert (body["sendListNames"], body["repelListNames"]) == (lists, ["left"])


@pytest.mark.parametrize(("given", "names"), [
    (None, None), ("", None), (" ", None), ("[]", []), ("a, b", ["a, b"]), (("a", "b"), ["a", "b"]),
    ("[VIP] customers", ["[VIP] customers"]), ("[VIP]", ["[VIP]"]), ("('a', 'b')", ["a", "b"]),
    ("[1, 2]", "send_list_names: every name must be text, but one is int"),
    ({"a": 1}, "send_list_names: must be a list of names or one name, not dict"),
    (7, "send_list_names: must be a list of names or one name, not int"),
])  # fmt: skip
def test_names_of_lists(given: Any, names: Any) -> None:
    if isinstance(names, str):
        with pytest.raises(MailValidationError, match=names):
            list_names("send_list_names", given)
    else:
        assert list_names("send_list_names", given) == names


def test_a_list_too_deep_to_be_parsed_is_a_name() -> None:
    text = "[" * 5000 + "]" * 5000
    # From Python 3.12 on, `json` may be able to parse it: then it is a list of lists.
    with suppress(*([MailValidationError] if sys.version_info >= (3, 12) else [])):
        assert list_names("send_list_names", text) == [text]


@hypothesis_given(st.lists(st.text(min_size=1)))
def test_what_a_template_makes_of_a_list_is_that_list(names: list[str]) -> None:
    assert list_names("send_list_names", str(names)) == names
    assert list_names("send_list_names", json.dumps(names)) == names
