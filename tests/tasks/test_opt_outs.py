"""Exports of eight tools, as these describe them, with invented people: nobody who said no is imported.

People without an address are counted, and do not fail the task.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mail.arguments import Consent, FileFormat, Suppress
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.transfers.object_storage_to_mail import ObjectStorageToMailContactsOperator
from mail_emulator import Emulator
from tests.tasks.conftest import Run, SqlDatabase
from tests.tasks.loading import error_of, executed

IMPORTS = "contacts/imports"
# fmt: off
EXPORTS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "mailchimp": (
        "Email Address,First Name,Last Name,MEMBER_RATING,OPTIN_TIME,OPTIN_IP,CONFIRM_TIME,LEID,Status\n"
        "ada@example.com,Ada,L,2,,,2026-01-01 09:00:00,101,subscribed\n"
        "bob@example.com,Bob,M,2,2025-01-01 09:00:00,192.0.2.1,2025-01-01 09:00:00,102,unsubscribed\n"
        "cem@example.com,Cem,N,1,,,2025-01-01 09:00:00,103,cleaned\n",
        {"Email Address": "email", "First Name": "name"},
        "consent=Consent(column='Status', yes=['subscribed'])", "ada 2 0"),
    "mailchimp_unsubscribed": (
        "Email Address,First Name,OPTIN_TIME,UNSUB_TIME,UNSUB_REASON\n"
        "bob@example.com,Bob,2025-01-01 09:00:00,2026-01-01 09:00:00,NORMAL\nada@example.com,Ada,,,\n",
        {"Email Address": "email", "First Name": "name"},
        "consent=Consent(column='UNSUB_TIME', yes=[''])", "ada 1 0"),
    "hubspot": (
        "Record ID,First Name,Last Name,Email,Phone Number,Unsubscribed from all email,Create Date\n"
        "1,Ada,L,ada@example.com,,,2025-01-01 09:00\n2,Bob,M,bob@example.com,,true,2025-01-01 09:00\n"
        "3,Cem,N,,,,2025-01-01 09:00\n4,Dora,O,dora@example.com,,false,2025-01-01 09:00\n",
        {"Email": "email", "First Name": "name"},
        "consent=Consent(column='Unsubscribed from all email', no=['true'])", "ada dora 1 1"),
    "salesforce": (
        '"First Name","Last Name","Email","Email Opt Out","Account Name"\n'
        '"Ada","L","ada@example.com","0","A"\n"Bob","M","bob@example.com","1","B"\n"Cem","N","","0","C"\n',
        {"Email": "email", "First Name": "name"},
        "consent=Consent(column='Email Opt Out', no=['1'])", "ada 1 1"),
    "google": (
        "First Name,Last Name,Labels,E-mail 1 - Label,E-mail 1 - Value,Phone 1 - Label,Phone 1 - Value\n"
        "Ada,L,* myContacts,* Home,ada@example.com,,\nBob,M,* myContacts,,,Mobile,+49 30 1\n",
        {"E-mail 1 - Value": "email", "First Name": "name"}, "", "ada 0 1"),
    "outlook": (
        '"First Name","Last Name","E-mail Address","E-mail Type","Mobile Phone","Sensitivity"\n'
        '"Ada","L","ada@example.com","SMTP","","Normal"\n"Bob","M","","","+49 30 1","Normal"\n',
        {"E-mail Address": "email", "First Name": "name"}, "", "ada 0 1"),
    "brevo": (
        "CONTACT ID;EMAIL;LASTNAME;FIRSTNAME;SMS;OPT_IN;ADDED_TIME\n1;ada@example.com;L;Ada;;Yes;01-01-2026 09:00:00\n"
        "2;bob@example.com;M;Bob;;No;01-01-2026 09:00:00\n3;cem@example.com;N;Cem;;;01-01-2026 09:00:00\n",
        {"EMAIL": "email", "FIRSTNAME": "name"}, "consent=Consent(column='OPT_IN', yes=['yes'])", "ada 2 0"),
    "klaviyo": (
        "Email,Klaviyo ID,First Name,Last Name,Phone Number,Email Marketing Consent,Email Marketing Consent Timestamp\n"
        "ada@example.com,01A,Ada,L,,SUBSCRIBED,2026-01-01 09:00:00\n"
        "bob@example.com,01B,Bob,M,,UNSUBSCRIBED,2026-01-01 09:00:00\ncem@example.com,01C,Cem,N,,NEVER_SUBSCRIBED,\n"
        ",01D,Dora,O,+49301,NEVER_SUBSCRIBED,\n",
        {"Email": "email", "First Name": "name"},
        "consent=Consent(column='Email Marketing Consent', yes=['subscribed'])", "ada 3 0"),
    # Its contacts say nothing; those who unsubscribed are in another file, which belongs into a table.
    "sendgrid": (
        "EMAIL,FIRST_NAME,LAST_NAME,CREATED_AT,UPDATED_AT\nada@example.com,Ada,L,2026-01-01T09:00:00Z,\n"
        ",Cem,N,2026-01-01T09:00:00Z,\n",
        {"EMAIL": "email", "FIRST_NAME": "name"}, "", "ada 0 1"),
}
"""The file, the mapping, the line that is suggested, who is imported, and the rows that are left out."""
# fmt: on


def load(folder: Path, tool: str, **arguments: Any) -> ObjectStorageToMailContactsOperator:
    text, columns, _, _ = EXPORTS[tool]
    (folder / "export.csv").write_text(text)
    form = FileFormat(delimiter=";") if tool == "brevo" else None
    given: dict[str, Any] = {"path": f"file://{folder}/export.csv", "columns": columns, "file_format": form}
    return ObjectStorageToMailContactsOperator(
        task_id="task", **given | {"list_name": "all", "exact_audience": True} | arguments
    )


@pytest.mark.parametrize("tool", EXPORTS)
def test_an_export(emulator: Emulator, tmp_path: Path, run: Run, tool: str) -> None:
    _, _, suggested, expected = EXPORTS[tool]
    *people, opted_out, without_address = expected.split()
    arguments: dict[str, Any] = {}
    if suggested:
        error = error_of(lambda: load(tmp_path, tool))
        assert f"consent: a column that seems to say who wants no mail is not used. Write {suggested}," in error
        assert emulator.journal.count(IMPORTS) == 0
        assert suggested in run(lambda: load(tmp_path, tool, exact_audience=False, sandbox_mode=True)).log
        emulator.journal.clear()
        arguments = {"consent": eval(suggested.removeprefix("consent="), {"Consent": Consent})}
    result = executed(load(tmp_path, tool, **arguments))
    assert [contact["email"].partition("@")[0] for contact in emulator.contacts()] == people
    counts = [result[name] for name in ("accepted", "opted_out", "without_address", "rejected")]
    assert counts == [len(people), int(opted_out), int(without_address), 0]


@pytest.mark.parametrize(
    ("column", "values", "suggested"),
    [
        # When somebody opted out, in whatever part of the name.
        ("email_opted_out_at", ["", "2024-01-01"], "yes=['']"),
        ("Date Unsubscribed", ["", "2024-01-01"], "yes=['']"),
        ("Last Unsubscribe Date", ["2024-01-01"], "yes=['']"),
        # Values that say it themselves.
        ("Mailing", ["active", "Opted out "], "no=['opted out']"),
        ("Contact Status", ["Customer", "Do Not Contact"], "no=['do not contact']"),
        ("Opt-out", ["opt-out", ""], "no=['opt-out']"),
        ("Status", ["Unsubscribed"], "yes=['subscribed']"),
        # Other names.
        ("No Email", ["1", ""], "no=['1']"),
        ("Email Subscription", ["Yes", "no"], "yes=['yes']"),
        ("is_subscribed", ["t", "f"], "yes=['t']"),
        # Other languages.
        ("Newsletter abgemeldet", ["ja", ""], "no=['ja']"),
        ("Désabonné", ["Oui"], "no=['oui']"),
        ("Dado de baja", ["sí"], "no=['sí']"),
        ("Uitgeschreven", ["1"], "no=['1']"),
        ("Отписан", ["да"], "no=['да']"),
        ("配信停止", ["1"], "no=['1']"),
        ("Werbeeinwilligung", ["ja", "nein"], "yes=['ja']"),
        ("Abmeldedatum", ["2024-01-01"], "yes=['']"),
        ("Statut", ["désinscrit"], "no=['désinscrit']"),
        ("subscribed_flag", ["Y"], "yes=['y']"),
        ("Receives Mail", ["x", ""], "yes=['x']"),
        # These say nothing.
        ("newsletter_opt_out_reason", ["too many"], ""),
        ("subscribed_on", ["2024-01-01"], ""),
        ("State", ["active", "CA"], ""),
        ("Date of consent", ["2024-01-01"], ""),
        ("subscription", ["gold"], ""),
    ],
)
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_what_looks_like_a_consent(tmp_path: Path, start: str, column: str, values: list[str], suggested: str) -> None:
    rows = "".join(f"{value},p{number}@example.com\n" for number, value in enumerate(values))
    (tmp_path / "people.csv").write_text(f"{start}{column},email\n{rows}")
    given: dict[str, Any] = {"path": f"file://{tmp_path}/people.csv", "columns": {"email": "email"}}
    operator = ObjectStorageToMailContactsOperator(task_id="t", **given, list_name="all", exact_audience=True)
    if suggested:
        assert f"Write consent=Consent(column={column!r}, {suggested})," in error_of(lambda: operator)
    else:
        assert executed(operator)["accepted"] == len(values)


@pytest.mark.parametrize(
    ("no", "imported"), [(["1"], "gh"), (["yes"], "gh"), ([True], "gh"), (["0"], "abcdefh"), (["No mail"], "abcdefgh")]
)
def test_spellings_of_a_boolean(emulator: Emulator, no: list[Any], imported: str) -> None:
    values = zip("abcdefgh", ("1", "TRUE", "1.0", " Yes", "y", "t", "0.0", ""), strict=True)
    operator = MailImportContactsOperator(
        task_id="task", contacts=[{"email": f"{name}@example.com", "o": value} for name, value in values],
        columns={"email": "email"}, list_name="all", consent=Consent(column="o", no=no),
    )  # fmt: skip
    executed(operator)
    assert "".join(contact["email"][0] for contact in emulator.contacts()) == imported


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_a_column_that_only_a_later_file_has(emulator: Emulator, tmp_path: Path, name: str) -> None:
    parts = {"csv": ("email\n", "a@example.com\n", "email,Unsubscribed\n", "b@example.com,1\n")}
    parts["jsonl"] = ("", '{"email":"a@example.com"}\n', "", '{"email":"b@example.com","Unsubscribed":1}\n')
    for number in (0, 1):
        (tmp_path / f"part-{number}.{name}").write_text("".join(parts[name][2 * number : 2 * number + 2]))
    operator = ObjectStorageToMailContactsOperator(
        task_id="t", path=f"file://{tmp_path}", columns={"email": "email"}, list_name="all", exact_audience=True
    )
    assert "Write consent=Consent(column='Unsubscribed', no=['true'])" in error_of(lambda: operator)


ROWS = [
    {"email": "ada@example.com", "subscribed": True, "plan": 1},
    {"email": "bob@example.com", "subscribed": False, "plan": 1},
    {"email": "cem@example.com", "subscribed": True, "plan": 2},
    {"email": "", "subscribed": True, "plan": 1},
    {"email": "!", "subscribed": True, "plan": 1.0},
]


def test_rows_of_a_task(emulator: Emulator, tmp_path: Path) -> None:
    """All conditions must hold; rejected rows keep their numbers."""
    conditions = [Consent(column="subscribed", yes=["TRUE "]), Consent(column="plan", no=[2])]
    operator = MailImportContactsOperator(
        task_id="task", contacts=ROWS, columns={"email": "email"}, list_name="all", consent=conditions
    )
    assert "1 of 5 rows were rejected: email is not an email address (1); row 5." in error_of(lambda: operator)
    assert [contact["email"] for contact in emulator.contacts()] == ["ada@example.com"]


def test_consent_of_a_column_that_is_not_there() -> None:
    operator = MailImportContactsOperator(
        task_id="task", contacts=ROWS[:1], columns={"email": "email"}, consent=Consent(column="optin", yes=["1"])
    )
    assert "consent: the source has no 'optin'" in error_of(lambda: operator)
    twice = MailImportContactsOperator(
        task_id="task", contacts=[("a@example.com", 0, 1)], column_names=["email", "out", "out"],
        columns={"email": "email"}, consent=Consent(column="out", no=["1"]),
    )  # fmt: skip
    assert "consent: the source has more than one 'out'" in error_of(lambda: twice)


def test_a_person_who_said_no_once_said_no(emulator: Emulator) -> None:
    """In whatever order the rows come, and however they spell the address."""
    people = ("ada", 1), ("bob", 1), ("ADA", 0), ("Bob", 1), ("Cem", 0), ("cem", 1)
    rows = [(f"{name}@example.com", yes) for name, yes in people]
    operator = MailImportContactsOperator(
        task_id="task", contacts=lambda: iter(rows), column_names=["email", "yes"], columns={"email": "email"},
        chunk_size=1, consent=Consent(column="yes", yes=[1]), list_name="all",
    )  # fmt: skip
    result = executed(operator)
    assert [result[name] for name in ("read", "accepted", "opted_out")] == [6, 2, 4]
    assert {contact["email"].lower() for contact in emulator.contacts()} == {"bob@example.com"}


def test_everybody_may_be_imported_and_no_address_at_all_is_an_error(emulator: Emulator, tmp_path: Path) -> None:
    assert executed(load(tmp_path, "salesforce", consent=[]))["accepted"] == 2
    wrong = load(tmp_path, "hubspot", columns={"Phone Number": "email"}, consent=[])
    assert "columns: no row has an address" in error_of(lambda: wrong)


def test_people_of_another_file_are_left_out(emulator: Emulator, tmp_path: Path, crm: SqlDatabase) -> None:
    crm.execute("CREATE TABLE sendgrid_unsubscribes (email TEXT)")
    crm.execute("INSERT INTO sendgrid_unsubscribes", [["ADA@example.com"]])
    leave_out = Suppress(table="sendgrid_unsubscribes", sql_conn_id="crm")
    assert executed(load(tmp_path, "sendgrid", suppress=leave_out))["suppressed"] == 1
    assert emulator.contacts() == []
