"""What a campaign is made of: bad input is an error that names the argument, before anything is sent.

Content that is the name of a file, and `MailPreflightOperator`, which finds what is wrong and changes nothing.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Param, task
from jinja2 import DebugUndefined, StrictUndefined, Undefined

from airflow_provider_mail._task.mixin import from_file
from airflow_provider_mail._task.rules import list_names
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.operators import campaigns
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.operators.preflight import MailPreflightOperator
from airflow_provider_mail.operators.templates import MailCreateTemplateOperator
from airflow_provider_mail.operators.transactional import MailSendBatchOperator, MailSendOperator
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.sending import CAMPAIGN, SENDS, campaign

NewDag = Callable[..., DAG]
CREATES = "campaign/mail/sends"
on_both = pytest.mark.parametrize("native", [False, True])


@pytest.fixture(autouse=True)
def _newsletter(emulator: Emulator) -> None:
    emulator.add_list("newsletter", ["ada@example.com", "bob@example.com"])


def create(**arguments: Any) -> MailCreateCampaignOperator:
    return campaign(**{"retries": 2} | arguments)


def sent(emulator: Emulator) -> list[dict[str, Any]]:
    return [entry["body"] for entry in emulator.journal.entries(CREATES)]


NAIVE = datetime.datetime(2030, 1, 1)


def test_what_is_wrong_and_right_in_the_dag_file(monkeypatch: pytest.MonkeyPatch, new_dag: NewDag) -> None:
    for arguments, words in (
        ({"sender_mail": None}, "sender_mail: is missing"),
        ({"repel_list_names": {"staff": 1}}, "repel_list_names: one text is needed, not the whole result"),
        ({"subject": None, "content": ""}, "subject: is missing; give it, or set allow_blank=True; content: "),
        ({"on_incomplete": "keep"}, r"on_incomplete: 'keep' needs wait_for_completion=True \(or only_save=True\)"),
        ({"cancel_on_kill": True}, "cancel_on_kill: needs wait_for_completion=True"),
    ):
        with pytest.raises(ValueError, match=words):
            create(**arguments)
    create(on_incomplete="keep", wait_for_completion=True, cancel_on_kill=True)
    create(on_incomplete="keep", only_save=True)
    partial = MailCreateCampaignOperator.partial
    with new_dag(default_args={"deferrable": True}):
        create()
        with pytest.raises(ValueError, match="send_date: "):
            partial(task_id="each", **CAMPAIGN).expand(send_date=[None, NAIVE])
        with pytest.raises(ValueError, match="send_date: "):
            partial(task_id="some", **CAMPAIGN).expand_kwargs([{}, {"send_date": NAIVE}])
        partial(task_id="right", **CAMPAIGN).expand_kwargs([{"send_date": None}])
        # What a mapped task is given later is not missing.
        partial(task_id="lists", sender_mail="news@example.com").expand(send_list_names=[["a"], ["b"]])
    monkeypatch.setattr(campaigns, "DEFERRABLE", True)
    create(deferrable=True)


NO_VALUE = "an expression of its template has no value"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"send_date": "{{ '' }}"}, "send_date: was given and resolves to nothing"),
    ({"send_list_names": ["{{ '' }}"]}, "send_list_names: item 0 is empty"),
    ({"send_list_names": "{{ [1] }}"}, "send_list_names: item 0 must be text, not int"),
    ({"attachment": {"file_name": "a.pdf", "file_data": "ÄÄ"}}, "file_data: not Base64"),
    ({"attachment": "/"}, "attachment: name one file, this is a folder"),
    # What renders to nothing is not mailed.
    ({"subject": "{{ '\u200b ' }}"}, "subject: is blank"),
    ({"subject": "{{ ti.xcom_pull('nothing') }}"}, "subject: is the text 'None'"),
    ({"content": "{{ ti.xcom_pull('nothing') }}"}, "content: is the text 'None'"),
    ({"content": "<p>&nbsp;</p><!-- {{ run_id }} -->"}, "content: shows nothing"),
    ({"sender_name": "{{ ti.xcom_pull('nothing') }}"}, "sender_name: is the text 'None'"),
    ({"subject": "{{ [1].mail_name }}"}, "write ti.xcom_pull('<task>', map_indexes=ti.map_index)"),
    ({"subject": "News of {{ ds }}"}, "subject: ds is undefined: this run has no logical date"),
    ({"send_date": "{{ data_interval_end + macros.timedelta(hours=2) }}"}, "send_date: data_interval_end is undefined"),
    ({"sender_name": "{{ '' }}"}, "sender_name: is empty"),
    ({"attachment": {"file_name": "a.txt", "file_data": "{{ none }}"}}, "attachment.file_data: is the text 'None'"),
    ({"subject": "{{ 'Hello ' ~ ti.xcom_pull('nothing') ~ '!' }}"}, f"subject: {NO_VALUE}"),
    ({"subject": "Hello {{ ti.xcom_pull('nothing') | trim or 'friend' }}"}, f"subject: {NO_VALUE}"),
    ({"subject": "{% set text = 'Hello ' ~ none %}{{ text }}"}, f"subject: {NO_VALUE}"),
    ({"content": "<p>{% for a in [1, none] %}{{ a }}{% endfor %}</p>"}, f"content: {NO_VALUE}"),
    ({"content": "<p>{% set x = 'nan' %}{{ x | float }}</p>"}, f"content: {NO_VALUE}"),
    ({"attachment": {"file_name": "{{ none }}.txt", "file_data": "QQ=="}}, f"attachment: {NO_VALUE}"),
    ({"repel_list_names": ["{{ ti.xcom_pull('nothing') }}"]}, f"repel_list_names: {NO_VALUE}"),
    ({"repel_list_names": "{{ var.value.get('left', '') }}"}, "repel_list_names: was given and resolves to nothing"),
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
def test_what_is_meant_is_mailed(run: Run, new_dag: NewDag, emulator: Emulator, native: bool) -> None:
    meant: list[dict[str, Any]] = [
        {"subject": "None"},
        {"subject": "{{ none }}", "content": "<p></p>", "allow_blank": True},
        {"subject": "{{ '' }}", "content": "{{ none }}", "only_save": True},
        {"content": "<img src='news.png'>"},
        {"subject": "Hello {{ none }}", "allow_blank": True},
        {"subject": "Hello {{ none }}", "only_save": True},
        {"subject": "Hello {% if none %}{{ none }}{% endif %}{{ none | default('', true) | upper }} None"},
        {"repel_list_names": "{{ [] }}", "send_list_names": " {{ ['newsletter', \"it's [new], ok\"] | tojson }} "},
    ]

    with new_dag(render_template_as_native_obj=native) as dag:
        for number, arguments in enumerate(meant):
            create(task_id=f"task{number}", mail_name=f"{number}", **arguments)
    emulator.add_list("it's [new], ok")
    assert run(dag).state == "success"
    assert len(sent(emulator)) == len(meant)
    assert sent(emulator)[-1]["sendListNames"] == ["newsletter", "it's [new], ok"]


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


@pytest.mark.parametrize(("given", "names"), [
    (None, None), ("", None), (" ", None), ("[]", []), ("a, b", ["a, b"]), (("a", "b"), ["a", "b"]),
    ("[VIP] customers", ["[VIP] customers"]), ("[VIP]", ["[VIP]"]), ("('a', \"b's\")", ["a", "b's"]),
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


# --- content that is the name of a file: what is in it is mailed, and never the name ---

FILE = "<p>{% raw %}{{name}}{% endraw %}: {{ params.day }}</p>\n<p>Unsubscribe</p>"
TEXT = "<p>{{name}}: Monday</p>\n<p>Unsubscribe</p>"
MAIL = {"sender_mail": "news@example.com", "subject": "news.html", "service_tags": ["name"]}
NAMES = ["newsletter.html", "newsletter.txt", "It's new.HTM"]
TO = {"to": "ada@example.com"}


@pytest.fixture
def dag(new_dag: NewDag, tmp_path: Path) -> DAG:
    for name in NAMES:
        (tmp_path / name).write_text(FILE)
    (tmp_path / "carts.sql").write_text("SELECT 'ada@example.com' AS email")
    return new_dag(template_searchpath=str(tmp_path), params={"day": "Monday"})


def test_the_file_is_mailed_or_stored(run: Run, dag: DAG, emulator: Emulator, crm: SqlDatabase) -> None:
    attachment = {"file_name": "terms.txt", "file_data": "eA=="}
    given = MAIL | {"content": "newsletter.html"}
    template = {"template_name": "hello.html", "template_subject": "x", "template_content": "newsletter.html"}
    with dag:
        for number, content in enumerate([*NAMES, "{% include 'news' ~ 'letter.html' %}"]):
            campaign(task_id=f"campaign{number}", mail_name=f"{number}", content=content)
        MailSendOperator(task_id="one", attachment=attachment, **TO, **given)
        MailSendBatchOperator(task_id="batch", messages=[TO], **given)
        SqlToMailBatchOperator(task_id="sql", sql_conn_id=crm.conn_id, sql="carts.sql", **given)
        MailCreateTemplateOperator(task_id="template", **template)
    assert run(dag).result.state == "success"
    messages = [entry["body"] for entry in emulator.journal.entries(SENDS)]
    assert [body["content"] for body in sent(emulator) + messages] == [TEXT] * 7
    assert {body["subject"] for body in messages} == {"news.html"}
    assert [(body.get("attachment") or {}).get("fileName") for body in messages].count("terms.txt") == 1
    assert [(stored["name"], stored["content"]) for stored in emulator.templates()] == [("hello.html", TEXT)]


def test_a_name_of_another_task_in_a_message_or_of_no_file(run: Run, dag: DAG, emulator: Emulator) -> None:
    with dag:
        name = task(lambda: "newsletter.html", task_id="name")()
        campaign(content=name)
        MailPreflightOperator(task_id="preflight", **CAMPAIGN | {"content": name})
        campaign(task_id="missing", content="newsletters.html")
        MailSendBatchOperator(task_id="batch", messages=[TO | {"content": "newsletter.html"}], **MAIL)
    done = run(dag)
    states = {name: ti.state for (name, _), ti in done.result.tasks.items() if name != "name"}
    assert states == dict.fromkeys(("task", "preflight", "missing", "batch"), "failed")
    assert done.log.count(" content: is only the name of a file") >= 2
    assert "messages[0].content: is only the name of a file" in done.log
    assert "newsletters.html" in done.log
    assert emulator.journal.count() == 0


def test_what_is_no_name_of_a_file() -> None:
    for content in (None, "", "<p>a.html</p>", "Look at\na.html", "{{ params.name }}.html", "a.pdf", ["a.html"]):
        assert from_file(content) == content


# --- `MailPreflightOperator`; what is found is in `tests/api/test_preflight.py` ---


@pytest.fixture
def look(emulator: Emulator) -> Callable[..., MailPreflightOperator]:
    emulator.add_list("vip", ["ada@example.com"])
    emulator.add_list("staff")
    emulator.add_campaign("spring 2025", sent=2, send_date="2025-03-01T09:00:00Z")
    mine = CAMPAIGN | {
        "subject": "Spring, {% raw %}{{name}}{% endraw %}",
        "content": "<p>It is here. <a href='{% raw %}{{link}}{% endraw %}'>Unsubscribe</a></p>",
        "send_list_names": ["newsletter", "vip"], "repel_list_names": ["staff"], "known_tags": ["name", "link"],
    }  # fmt: skip
    return lambda **given: MailPreflightOperator(**{"task_id": TASK, "retries": 2} | mine | given)


Look = Callable[..., MailPreflightOperator]
BLANK = {"subject": None, "allow_blank": True}
NOBODY = {"send_list_names": ["nobody"]}


@pytest.mark.parametrize(("arguments", "fail_on", "expected"), [
    (NOBODY, "error", "lists: there is no list 'nobody'"),
    ({"max_recipients": "{{ 1 + 1 }}"}, "error", "recipients: 3 contacts in the target lists; max_recipients is 2"),
    (BLANK, "error", (0, 1)),
    (BLANK, "warning", "subject: there is none"),
    (BLANK | NOBODY, "never", (2, 1)),
    # The templates are text until they are rendered, and may stay so.
    ({"max_growth": "{{ 1.4 }}", "compare_with": "spring {{ '' }}"}, "never", (1, 0)),
    ({"max_growth": 1.5, "compare_with": "spring "}, "warning", (0, 0)),
])  # fmt: skip
def test_what_fails_the_task_is_chosen(
    run: Run, emulator: Emulator, look: Look, arguments: dict[str, Any], fail_on: str, expected: Any
) -> None:
    done = run(lambda: look(fail_on=fail_on, **arguments))
    if isinstance(expected, str):
        assert (done.state, done.tries) == ("failed", 1)
        assert "campaign 'spring' should not go out: " in done.log
        assert expected in done.log
    else:
        assert (done.state, done.returned["errors"], done.returned["warnings"]) == ("success", *expected)
        assert [line for line in done.returned["table"].splitlines() if line not in done.log] == []
    assert emulator.journal.processed(CREATES) == []


def test_findings_hold_no_addresses_of_people(run: Run, emulator: Emulator, look: Look) -> None:
    said = "planted-one@example.com is on holiday"
    emulator.faults.add("code_before", CREATES, code=403, message=said, http_status=200)
    done = run(lambda: look(sender_mail="promo@example.com", fail_on="never"))
    assert "promo@example.com is not a sender" in done.returned["table"]
    assert "*** is on holiday" in done.returned["table"]
    pushed = json.dumps([*done.result.xcoms().values()])
    assert [place for place in (pushed, done.log) if "planted" in place or "ada@" in place] == []


@pytest.mark.parametrize("rule", ["none_failed", "all_done"])
def test_an_audience_without_a_result_mails_nobody(
    run_in_airflow: Run, emulator: Emulator, errors: list[BaseException], rule: str
) -> None:
    """Not the other lists alone; and of the parts of a mapped import, not those that succeeded alone."""
    emulator.add_list("other", ["eva@example.com"])
    people: list[list[dict[str, str]]] = [
        [{"email": "ada@example.com"}],
        [] if rule == "none_failed" else [{"email": "!"}],
    ]

    def tasks() -> None:
        given: dict[str, Any] = {"list_name": "all", "on_empty": "skip", "exact_audience": True}
        single = MailImportContactsOperator(task_id="single", contacts=people[1], **given)
        mapped = MailImportContactsOperator.partial(task_id="mapped", **given).expand(contacts=people)
        for name, audience in (("one", single.output), ("parts", mapped.output), ("list", [single.output])):
            create(task_id=name, audience=audience, send_list_names=["other"], trigger_rule=rule)

    done = run_in_airflow(tasks)
    assert [done.result.task(name).state for name in ("one", "parts", "list")] == ["failed"] * 3
    said = " ".join(map(str, errors))
    assert "audience: was given and resolves to nothing" in said
    assert "audience: [0]: was given and resolves to nothing" in said
    assert "audience: 1 of 2 parts of task 'mapped' have no result (mapped_1: " in said
    assert emulator.journal.count(CREATES) == 0
