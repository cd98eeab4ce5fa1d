"""Bad input to `MailCreateCampaignOperator` is an error that names the argument, before anything is sent."""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2
import pytest
from airflow.sdk import DAG, Param
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st
from jinja2 import DebugUndefined, StrictUndefined, Undefined

from airflow_provider_mail._task.list_names import list_names
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.operators import campaigns
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.version_compat import AirflowFailException
from tests.tasks.conftest import TASK, Run

GOOD = {
    "mail_name": "spring",
    "sender_mail": "news@example.com",
    "subject": "Spring",
    "content": "<p>Hi</p>",
    "send_list_names": ["newsletter"],
}


def create(**arguments: Any) -> MailCreateCampaignOperator:
    return MailCreateCampaignOperator(**{"task_id": TASK, "retries": 2} | GOOD | arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"send_date": datetime.datetime(2030, 1, 1)}, "send_date: "),
        ({"send_date": "2030-01-01T00:00:00"}, "send_date: "),
        ({"send_date": "2030-01-01"}, "send_date: not an ISO 8601 date and time"),
        ({"send_date": 20300101}, "send_date: must be a datetime or ISO 8601 text"),
        ({"language_code": "EN"}, "language_code: Input should be 'zh-cn', 'en', "),
        ({"editor_type": "classic"}, "editor_type: 'classic' is none of CLASSIC, DRAG"),
        ({"mail_name": "x" * 201}, "mail_name: 201 bytes in UTF-8, at most 200 are allowed"),
        ({"mail_name": "ä" * 101}, "mail_name: 202 bytes in UTF-8, at most 200 are allowed"),
        ({"mail_name": ""}, "mail_name: "),
        ({"mail_name": 5}, "mail_name: text is needed, not int"),
        ({"mail_name": {"mail_name": "a"}}, "mail_name: one text is needed, not the whole result of a task"),
        ({"send_list_names": None}, "send_list_names: required unless only_save is true"),
        ({"send_list_names": []}, "send_list_names: required unless only_save is true"),
        ({"send_list_names": ["a", 1]}, "send_list_names: item 1 must be text, not int"),
        ({"repel_list_names": {"staff": 1}}, "repel_list_names: one text is needed, not the whole result"),
        ({"sender_mail": "news"}, "sender_mail: is not an email address"),
        ({"sender_mail": None}, "sender_mail: is missing"),
        ({"reply_to": "Ada <ada@example.com>"}, "reply_to: is not an email address"),
        ({"only_save": "{{ params.draft }}"}, "only_save: True or False is needed"),
        ({"deferrable": True}, "deferrable: needs wait_for_completion=True"),
        (
            {"subject": None, "content": ""},
            "subject: is missing; give it, or set allow_blank=True; content: ",
        ),
        ({"attachment": {"file_name": "a.pdf"}}, "attachment: a dictionary needs file_name and file_data"),
        ({"attachment": {"file_name": "a", "file_data": "", "size": "3"}}, "attachment: a dictionary needs"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_in_the_dag_file_breaks_it(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        create(**arguments)
    if not {"send_list_names", "deferrable", "subject"} & arguments.keys():
        with pytest.raises(ValueError, match=re.escape(words)):
            MailCreateCampaignOperator.partial(task_id=TASK, **arguments)


def test_what_a_mapped_task_is_given_later_is_not_missing(new_dag: Callable[..., DAG]) -> None:
    with new_dag():
        MailCreateCampaignOperator.partial(task_id=TASK, sender_mail="news@example.com").expand(
            send_list_names=[["a"], ["b"]]
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"send_date": datetime.datetime(2030, 1, 1)}, "send_date: "), ({"language_code": "EN"}, "language_code: Input")],
)
def test_what_is_wrong_in_a_mapped_task_breaks_the_dag_file(
    new_dag: Callable[..., DAG], arguments: dict[str, Any], words: str
) -> None:
    ((name, value),), partial = arguments.items(), MailCreateCampaignOperator.partial
    with new_dag():
        with pytest.raises(ValueError, match=words):
            partial(task_id="each", **GOOD).expand(**{name: [None, value]})
        with pytest.raises(ValueError, match=words):
            partial(task_id="some", **GOOD).expand_kwargs([{}, arguments])
        partial(task_id="right", **GOOD).expand_kwargs([{name: None}])


@pytest.mark.parametrize(
    ("given", "words"),
    [({"deferrable": True}, "deferrable: needs"), ({"cancel_on_kill": True}, "cancel_on_kill: needs")],
)
def test_arguments_that_do_not_go_together_end_a_mapped_task_at_once(
    run_in_airflow: Run, emulator: Emulator, errors: list[BaseException], given: dict[str, Any], words: str
) -> None:
    done = run_in_airflow(
        lambda: MailCreateCampaignOperator.partial(task_id="mapped", retries=2, **GOOD | given).expand(
            reply_to=["a@example.com"]
        )
    )
    assert done.result.task("mapped", 0).try_number == 1
    assert isinstance(errors[-1], AirflowFailException)
    assert str(errors[-1]).startswith(words)
    assert emulator.journal.count() == 0


def test_deferrable_by_default_does_not_fail_a_mapped_task(
    run_in_airflow: Run, emulator: Emulator, new_dag: Callable[..., DAG]
) -> None:
    emulator.add_list("newsletter", ["ada@example.com"])
    with new_dag(default_args={"deferrable": True}) as dag:
        MailCreateCampaignOperator.partial(task_id="mapped", **GOOD).expand(reply_to=["a@example.com"])
    assert run_in_airflow(dag).result.state == "success"


def test_deferrable_by_default_waits_for_nothing(monkeypatch: pytest.MonkeyPatch, new_dag: Callable[..., DAG]) -> None:
    with new_dag(default_args={"deferrable": True}):
        create()
    monkeypatch.setattr(campaigns, "DEFERRABLE", True)
    create(deferrable=True)


def test_a_stored_template_is_not_for_campaigns() -> None:
    for make in (create, MailCreateCampaignOperator.partial):
        with pytest.raises(TypeError, match=r"^template_name: write content="):
            make(task_id=TASK, template_name="welcome")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"send_date": "{{ '2030-01-01' }}"}, "send_date: not an ISO 8601 date and time"),
        ({"send_date": "{{ '' }}"}, "send_date: not an ISO 8601 date and time"),
        ({"send_date": "{{ none }}"}, "send_date: its template rendered to None"),
        ({"language_code": "{{ 'EN' }}"}, "language_code: "),
        ({"editor_type": "{{ 'VI' }}"}, "editor_type: "),
        ({"mail_name": "{{ 'x' * 201 }}"}, "mail_name: 201 bytes in UTF-8, at most 200 are allowed"),
        ({"mail_name": "{{ none }}"}, "mail_name: its template rendered to None"),
        ({"mail_name": "{{ {'mail_name': 'a'} }}"}, "Write mail_name=task.output['mail_name']"),
        ({"send_list_names": ["{{ '' }}"]}, "send_list_names: item 0 is empty"),
        ({"send_list_names": "{{ [1] }}"}, "send_list_names: item 0 must be text, not int"),
        ({"send_list_names": "{{ {'list_name': 'a'} }}"}, "send_list_names: one text is needed, not the whole result"),
        ({"ignore_differences": ["contents"]}, "ignore_differences: there is no field contents"),
        ({"attachment": {"file_name": "a.pdf", "file_data": "ÄÄ"}}, "file_data: not Base64"),
        ({"attachment": "/"}, "attachment: name one file, this is a folder"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("native", [False, True])
def test_is_an_error(
    new_dag: Callable[..., DAG], run: Run, emulator: Emulator, arguments: dict[str, Any], words: str, native: bool
) -> None:
    with new_dag(render_template_as_native_obj=native) as dag:
        create(**arguments)
    done = run(dag)

    assert (done.state, done.tries) == ("failed", 1)
    if not native:
        assert words in done.log
    assert emulator.journal.count() == 0


def test_a_wait_without_a_pause_breaks_the_dag_file() -> None:
    with pytest.raises(ValueError, match="poke_interval: must be a number, more than 0"):
        create(poke_interval=0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"on_incomplete": "delete"}, "on_incomplete: 'delete' is none of cancel, keep, fail"),
        ({"on_incomplete": None}, "on_incomplete: None is none of"),
        ({"on_incomplete": "keep"}, r"on_incomplete: 'keep' needs wait_for_completion=True \(or only_save=True\)"),
        ({"cancel_on_kill": True}, "cancel_on_kill: needs wait_for_completion=True"),
    ],
)
def test_a_choice_that_cannot_be_breaks_the_dag_file(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        create(**arguments)


def test_choices_that_can_be() -> None:
    create(on_incomplete="keep", wait_for_completion=True, cancel_on_kill=True)
    create(on_incomplete="keep", only_save=True)
    create(on_incomplete="cancel")


def test_several_errors_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"mail_name: .*; reply_to: .*; language_code: "):
        create(language_code="xx", reply_to="nobody", mail_name="x" * 300)


# --- the service's tags and Airflow's templates are both written with two braces ---


@pytest.fixture
def _newsletter(emulator: Emulator) -> None:
    emulator.add_list("newsletter", ["ada@example.com"])


def sent(emulator: Emulator) -> dict[str, Any]:
    (entry,) = emulator.journal.entries("campaign/mail/sends")
    body: dict[str, Any] = entry["body"]
    return body


@pytest.mark.usefixtures("_newsletter")
def test_raw_tags_reach_the_service(run: Run, emulator: Emulator) -> None:
    raw = "{% raw %}Hello {{name}}, {{ first_name }}{% endraw %}, today is {{ params.day }}"

    with DAG("tags", schedule=None, params={"day": "Monday"}) as dag:
        create(subject=raw, content=f"<p>{raw}</p>")
    done = run(dag)

    assert done.state == "success", done.log
    assert sent(emulator)["subject"] == "Hello {{name}}, {{ first_name }}, today is Monday"
    assert sent(emulator)["content"] == "<p>Hello {{name}}, {{ first_name }}, today is Monday</p>"


@pytest.mark.usefixtures("_newsletter")
def test_tags_come_whole_from_a_file(run: Run, new_dag: Callable[..., DAG], emulator: Emulator, tmp_path: Path) -> None:
    (tmp_path / "news.html").write_text("<p>{% raw %}{{name}}{% endraw %}: {{ params.day }}</p>")
    with new_dag(template_searchpath=str(tmp_path), params={"day": "Monday"}) as dag:
        create(content="{% include 'news.html' %}")

    assert run(dag).state == "success"

    assert sent(emulator)["content"] == "<p>{{name}}: Monday</p>"


@pytest.mark.usefixtures("_newsletter")
@pytest.mark.parametrize("field", ["subject", "content"])
def test_a_tag_that_airflow_does_not_know_fails_the_task_and_is_not_lost(
    run: Run, emulator: Emulator, errors: list[BaseException], field: str
) -> None:
    done = run(lambda: create(**{field: "Hello {{name}}", "retries": 0}))

    assert done.state == "failed"
    assert str(errors[-1]) == (
        f"{field}: {{{{name}}}} is undefined: Airflow has no value of that name. If it is a tag that the service is to "
        "fill in, write {% raw %}{{name}}{% endraw %}"
    )
    assert emulator.journal.count() == 0


@pytest.mark.usefixtures("_newsletter")
def test_such_a_tag_in_a_mapped_task_is_named_too(
    run_in_airflow: Run, emulator: Emulator, errors: list[BaseException]
) -> None:
    good = {"sender_mail": "news@example.com", "send_list_names": ["newsletter"], "subject": "Hello {{name}}"}
    done = run_in_airflow(
        lambda: MailCreateCampaignOperator.partial(task_id="mapped", **good).expand(content=["<p>Hi</p>"])
    )

    assert done.result.state == "failed"
    assert "subject: {{name}} is undefined" in str(errors[-1])


@pytest.mark.usefixtures("_newsletter")
def test_a_tag_with_a_space_is_named_too(run: Run, emulator: Emulator, errors: list[BaseException]) -> None:
    run(lambda: create(content="<p>Hi</p>\n<p>{{first name}}</p>", retries=3))

    (error,) = errors
    assert isinstance(error, AirflowFailException), "no retry fixes it"
    assert "content: line 2 is no template" in str(error)
    assert "{% raw %}" in str(error)


def test_other_errors_of_templates_are_left_alone(run: Run, errors: list[BaseException]) -> None:
    run(lambda: create(subject="{{ ti.xcom_pull(task_ids='none')['x'] }}", retries=0))

    assert isinstance(errors[-1], jinja2.UndefinedError)


@pytest.mark.parametrize(
    "given",
    [
        ["newsletter", "it's [new], ok"],
        "{{ params.lists }}",
        "{{ params.lists | tojson }}",
        " {{ params.lists | list }} ",
    ],
)
@pytest.mark.parametrize("native", [False, True])
def test_lists_from_a_trigger_form(
    run: Run, new_dag: Callable[..., DAG], emulator: Emulator, given: Any, native: bool
) -> None:
    lists = ["newsletter", "it's [new], ok"]
    for name in lists:
        emulator.add_list(name)
    emulator.add_list("left")
    with new_dag(params={"lists": lists, "repel": "left"}, render_template_as_native_obj=native) as dag:
        create(send_list_names=given, repel_list_names="{{ params.repel }}")

    assert run(dag).state == "success"

    assert sent(emulator)["sendListNames"] == lists
    assert sent(emulator)["repelListNames"] == ["left"]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, None),
        ("", None),
        (" ", None),
        ("[]", []),
        ("a, b", ["a, b"]),
        ("[VIP] customers", ["[VIP] customers"]),
        ("[VIP]", ["[VIP]"]),
        ("('a', 'b')", ["a", "b"]),
        (("a", "b"), ["a", "b"]),
    ],
)
def test_names_of_lists(given: Any, names: list[str] | None) -> None:
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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("[1, 2]", "send_list_names: every name must be text, but one is int"),
        ({"a": 1}, "send_list_names: must be a list of names or one name, not dict"),
        (7, "send_list_names: must be a list of names or one name, not int"),
    ],
)
def test_what_is_no_name_of_a_list(given: Any, message: str) -> None:
    with pytest.raises(MailValidationError, match=message):
        list_names("send_list_names", given)


@pytest.mark.usefixtures("_newsletter")
def test_what_another_task_made_is_no_template(run: Run, new_dag: Callable[..., DAG], emulator: Emulator) -> None:
    from airflow.sdk import task

    with new_dag() as dag:

        @task
        def page() -> str:
            return "<p>Hello {{name}}</p>"

        create(content=page())

    assert run(dag).state == "success"

    assert sent(emulator)["content"] == "<p>Hello {{name}}</p>"


# --- what renders to nothing ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"subject": "{{ '\u200b ' }}"}, "subject: is blank"),
        ({"content": "<p>&nbsp;</p><!-- {{ ds_nodash }} -->"}, "content: shows nothing"),
        ({"content": "{{ var.value.get('body', '') }}"}, "content: is empty"),
        ({"content": "{{ ti.xcom_pull('nothing') }}"}, "content: is the text 'None'"),
        ({"sender_name": "{{ ti.xcom_pull('nothing') }}"}, "sender_name: is the text 'None'"),
        ({"sender_name": "{{ '' }}"}, "sender_name: is empty"),
        ({"reply_to": "{{ none }}"}, "reply_to: is the text 'None'"),
        ({"attachment": {"file_name": "a.txt", "file_data": "{{ none }}"}}, "attachment.file_data: is the text 'None'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_renders_to_nothing_is_not_mailed(
    run: Run, emulator: Emulator, arguments: dict[str, Any], words: str
) -> None:
    done = run(lambda: create(**arguments))

    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert emulator.journal.count() == 0


NO_VALUE = "an expression of its template has no value"


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"subject": "Hello {{ none }}"}, f"subject: {NO_VALUE}"),
        ({"subject": "Hello {{ ti.xcom_pull('nothing') }}!"}, f"subject: {NO_VALUE}"),
        ({"subject": "{{ 'Hello ' ~ ti.xcom_pull('nothing') ~ '!' }}"}, f"subject: {NO_VALUE}"),
        ({"subject": "Hello {{ ti.xcom_pull('nothing') | trim | title }}"}, f"subject: {NO_VALUE}"),
        ({"subject": "Hello {{ ti.xcom_pull('nothing') | trim or 'friend' }}"}, f"subject: {NO_VALUE}"),
        ({"subject": "{% set text = 'Hello ' ~ none %}{{ text }}"}, f"subject: {NO_VALUE}"),
        ({"content": "<p>{% for a in [1, none] %}{{ a }}{% endfor %}</p>"}, f"content: {NO_VALUE}"),
        ({"content": "<p>{% set x = 'nan' %}{{ x | float }}</p>"}, f"content: {NO_VALUE}"),
        ({"sender_name": "{{ ti.xcom_pull('shop') }} News"}, f"sender_name: {NO_VALUE}"),
        ({"attachment": {"file_name": "{{ none }}.txt", "file_data": "QQ=="}}, f"attachment: {NO_VALUE}"),
        ({"mail_name": "news {{ none | ds }}"}, f"mail_name: {NO_VALUE}"),
        ({"send_list_names": ["a", "{{ none }} b"]}, f"send_list_names: {NO_VALUE}"),
        ({"repel_list_names": ["{{ ti.xcom_pull('nothing') }}"]}, f"repel_list_names: {NO_VALUE}"),
        ({"repel_list_names": "{{ ti.xcom_pull('nothing') }}"}, "repel_list_names: its template rendered to"),
        ({"repel_list_names": "{{ var.value.get('left', '') }}"}, "repel_list_names: its template rendered to"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_an_expression_without_a_value_is_not_mailed(
    run: Run, new_dag: Callable[..., DAG], emulator: Emulator, arguments: dict[str, Any], words: str, native: bool
) -> None:
    with new_dag(render_template_as_native_obj=native) as dag:
        create(**arguments)

    done = run(dag)

    assert (done.state, done.tries) == ("failed", 1)
    assert words in done.log
    assert emulator.journal.count() == 0


@pytest.mark.usefixtures("_newsletter")
@pytest.mark.parametrize(("undefined", "state"), [(DebugUndefined, "success"), (Undefined, "failed")])
def test_a_dag_whose_undefined_names_are_tags_of_the_service(
    run: Run, new_dag: Callable[..., DAG], emulator: Emulator, undefined: Any, state: str
) -> None:
    with new_dag(template_undefined=undefined) as dag:
        create(subject="Hello {{ name }}", content="<p>{{ name ~ '!' }}</p>")

    assert run(dag).state == state

    assert emulator.journal.count("campaign/mail/sends") == (state == "success")


@pytest.mark.usefixtures("_newsletter")
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("undefined", [StrictUndefined, Undefined])
def test_what_is_compared_or_has_a_default_is_not_shown(
    run: Run, new_dag: Callable[..., DAG], emulator: Emulator, undefined: Any, native: bool
) -> None:
    parts = [
        "{% if params.vip | lower == 'true' %}VIP{% endif %}",
        "{{ 'VIP' if params.vip | string | lower == 'true' else 'you' }}",
        "{% set vip = params.vip | lower %}{{ 'VIP' if vip == 'true' else 'and' }}",
        "{{ params.vip | trim | replace('None', 'all') }}",
        "{{ params.vip | string | length }}",
        *(["{{ (unknown | title) or 'x' }}", "{{ unknown | trim | d('y', true) }}"] if undefined is Undefined else []),
    ]
    with new_dag(
        template_undefined=undefined, params={"vip": Param(None)}, render_template_as_native_obj=native
    ) as dag:
        create(subject=" ".join(["Hello", *parts]))

    assert run(dag).state == "success"

    assert sent(emulator)["subject"].split()[:5] == ["Hello", "you", "and", "all", "4"]


@pytest.mark.usefixtures("_newsletter")
@pytest.mark.parametrize("empty", ["", "{{ params.none or '' }}"])
def test_empty_text_leaves_out_what_is_optional(
    run: Run, new_dag: Callable[..., DAG], emulator: Emulator, empty: str
) -> None:
    names = ("language_code", "editor_type", "market_name", "subscript_name", "project_code")
    with new_dag(params={"none": Param(None)}) as dag:
        create(**dict.fromkeys(names, empty))

    done = run(dag)

    assert done.state == "success", done.log
    assert sent(emulator).keys() == {"mailName", "senderMail", "subject", "content", "sendListNames"}


@pytest.mark.parametrize("name", ["subject", "content", "sender_name"])
@pytest.mark.parametrize("native", [False, True])
def test_none_of_another_task_is_not_mailed(
    run: Run, new_dag: Callable[..., DAG], emulator: Emulator, name: str, native: bool
) -> None:
    from airflow.sdk import task

    with new_dag(render_template_as_native_obj=native) as dag:

        @task
        def nothing() -> None:
            return None

        nothing() >> create(**{name: "{{ ti.xcom_pull('nothing') }}"})
        create(task_id="other", mail_name="other", **{name: nothing.override(task_id="none")()})

    done = run(dag)

    assert done.result.state == "failed"
    assert done.log.count(f"{name}: is None; nothing was sent") >= 1 + native
    assert emulator.journal.count("campaign/mail/sends") == 0


@pytest.mark.usefixtures("_newsletter")
@pytest.mark.parametrize(
    "arguments",
    [
        {"subject": "None"},
        {"subject": "{{ none }}", "content": "<p></p>", "allow_blank": True},
        {"subject": "{{ '' }}", "content": "{{ none }}", "only_save": True},
        {"content": "<img src='news.png'>"},
        {"subject": "Hello {{ none }}", "allow_blank": True},
        {"subject": "Hello {{ none }}", "only_save": True},
        {"subject": "Hello {% if none %}{{ none }}{% endif %}{{ none | default('', true) | upper }} None"},
        {"repel_list_names": "{{ [] }}"},
    ],
)
def test_what_is_meant_is_mailed(run: Run, emulator: Emulator, arguments: dict[str, Any]) -> None:
    assert run(lambda: create(**arguments)).state == "success"
    assert emulator.journal.count("campaign/mail/sends") == 1
