"""Secrets and people's data are planted in every shape of failure, in a real Airflow that logs all it can.

Afterwards everything that left the processes is searched: each file below Airflow's home, and each row of each table of
its database, while tasks wait in the triggerer and when all is over.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect

from mail_emulator import Emulator, EmulatorSettings
from tests.real.airflow.leak_cases import ANSWERS, ELSEWHERE, JSON, NEVER, PLANTED, SECRETS, SHAPES
from tests.support.airflow import FINISHED, RunningAirflow
from tests.support.dags import AIRFLOW_VERSION
from tests.support.postgres import Database, PostgresServer
from tests.support.processes import wait_until
from tests.support.serving import Handler, Server
from tests.tasks.everything import OPERATORS

WORDS = {*PLANTED.values(), *SECRETS.values(), "planted"}

CAMPAIGN = {"mailStatus": 1, "rcptEmails": [PLANTED["address"]], "mailContent": PLANTED["name"]}


def campaign(mail_name: str, **fields: Any) -> dict[str, Any]:
    return {"code": 200, "mailList": [{"mailName": mail_name, **CAMPAIGN, **fields}], "totalRecords": 1}


ODD_CONTACT = {"id": "1", "email": PLANTED["address"], "createDate": PLANTED["phone"]}
# The first responses, before what fails.
FIRST: dict[str, list[dict[str, Any]]] = {
    "refused_later": [campaign("spring refused_later")],
    "broken_later": [campaign("spring broken_later")],
    "heard": [
        campaign("spring heard", mailStatus=2, guid="g-1", sendByDateTime=int(time.time() * 1000)),
        {"code": 200, "mailList": [], "totalRecords": 1},
    ],
    "odd_contacts": [{"code": 200, "contactList": [ODD_CONTACT], "totalRecords": 1}],
}
LATER = {"refused_later": "code_401", "broken_later": "page_500", "heard": "page_500", "odd_contacts": "code_400"}
GREEN = {
    *("sent", "unclear_skip", "sql_imported", "canary", "upserted", "deleted", "batch_sent", "file_imported"),
    *("contacts_loaded", "contacts_files", "preflight", "webhook", "mailed"),
}
FILES = {
    "people.csv": "email,name,phone_number\n{address},{name},{phone}\n{address} {address},{name},\n",
    "torn.jsonl": '{{"email": "{address}", "name": "{name}"}}\n{{"email": "{address}", "na',
}


class Parrot(Server):
    """A service that fails as the first part of the path says, and repeats what it received and must not show."""

    def __init__(self, elsewhere: str = NEVER) -> None:
        super().__init__(Answering)
        self.elsewhere = elsewhere
        self.seen, self.told, self.over = Counter[str](), set[str](), threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that speak TLS, or hang up, are no errors."""


class Answering(Handler):
    server: Parrot

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        said = f"{self.headers} {self.path} {body}"
        told = [word for word in {**PLANTED, **SECRETS}.values() if word in said]
        self.server.told.update(told)
        shape = self.path.split("/")[1]
        self.server.seen[shape] += 1
        if shape == "silent":
            self.server.over.wait()
        if shape in ("silent", "hang_up"):
            return
        quote = f"not for {' or '.join(told)}"
        status, kind, text = ANSWERS.get(LATER.get(shape, shape), (200, JSON, '{"code": 200}'))
        if first := FIRST.get(shape, [])[self.server.seen[shape] - 1 :]:
            status, kind, text = 200, JSON, json.dumps(first[0])
        answer = text.replace("{quote}", quote).encode()
        self.send_response(status, quote)
        location = f"{self.server.elsewhere}/v5/lists/get?{quote}"
        more = {307: {"Location": location}, 429: {"Retry-After": "999"}}.get(status, {})
        headers = {"X-Told": quote, "Content-Type": kind, "Content-Length": str(len(answer)), **more}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST


@pytest.fixture(scope="module")
def parrot() -> Iterator[Parrot]:
    with Parrot() as elsewhere, Parrot(elsewhere.base_url) as parrot:
        yield parrot
        assert not elsewhere.seen, "nobody follows a redirect"
        for each in (parrot, elsewhere):
            each.over.set()


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    """A service that accepts everything."""
    with Emulator(EmulatorSettings(api_key=SECRETS["key"])) as emulator:
        emulator.add_sender("news@example.com")
        for name in ("friends", "known"):
            emulator.add_list(name)
        emulator.add_contact(PLANTED["gone"])
        person = {"name": PLANTED["name"], "phone_number": PLANTED["phone"], "properties": {"note": PLANTED["name"]}}
        emulator.add_contact(PLANTED["address"], lists=["known"], **person)
        yield emulator
        assert emulator.crashes() == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of people, outside of Airflow's home."""
    folder = tmp_path_factory.mktemp("files")
    for name, text in FILES.items():
        (folder / name).write_text(text.format(**PLANTED))
    return folder


@pytest.fixture(scope="module")
def crm(postgres_server: PostgresServer) -> Iterator[Database]:
    """People, and tables into which they do not go."""
    words = (PLANTED["address"], f"{PLANTED['address']}, {PLANTED['address']}", PLANTED["name"], PLANTED["phone"])
    with postgres_server.database() as crm:
        with crm.connect() as connection:
            connection.execute("CREATE TABLE people (email text, name text, phone_number text)")
            connection.execute("INSERT INTO people SELECT unnest(ARRAY[%s, %s]), %s, %s", words)
            for statement in (
                "CREATE TABLE unsuited (import_id int)",
                "CREATE TABLE guarded (mail_conn_id text, team_name text, list_name text, id text, email text, "
                "PRIMARY KEY (mail_conn_id, team_name, list_name, id))",
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'not %', NEW; END $$",
                "CREATE TRIGGER refuse BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION refuse()",
            ):
                connection.execute(statement)
        yield crm


@pytest.fixture(scope="module", autouse=True)
def surroundings(airflow: RunningAirflow, crm: Database, parrot: Parrot, emulator: Emulator, folder: Path) -> None:
    """The connections and variables of the DAG."""
    extra = {"client_secret": SECRETS["client_secret"], "access_token": SECRETS["token"], "timeout": 60}
    mail = {"conn_type": "mail", "password": SECRETS["key"], "extra": extra}
    hosts: dict[str, dict[str, Any]] = {
        shape: {"host": f"{parrot.base_url}/{shape}"} for shape in (*SHAPES, *LATER, "good")
    }
    hosts["emulator"] = {"host": emulator.base_url}
    hosts["silent"]["extra"] = extra | {"timeout": 1}
    hosts["no_tls"]["host"] = hosts["no_tls"]["host"].replace("http:", "https:")
    for name, fields in (hosts | ELSEWHERE).items():
        airflow.set_connection(f"mail_{name}", mail | fields)
    airflow.set_connection("crm", crm.airflow_connection)
    elsewhere = {"conn_type": "postgres", "host": "127.0.0.1", "port": 9, "login": "me"}
    airflow.set_connection("crm_elsewhere", elsewhere | {"password": SECRETS["sql-password"]})
    for name, word in (PLANTED | {"folder": str(folder)}).items():
        airflow.set_variable(f"leak_{name}", word)


def rows_of(airflow: RunningAirflow, *tables: str) -> Iterator[tuple[str, str]]:
    """Every row of these tables of Airflow's own, or of all, as text, with the table's name."""
    for table in tables or inspect(create_engine(airflow.metadata.sqlalchemy_url)).get_table_names():
        for row in airflow.query(f'SELECT * FROM "{table}"'):
            yield table, str(row)


def files_below(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files and their text, but for those that are removed meanwhile."""
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                yield path, path.read_text(errors="replace")


def found(text: str) -> set[str]:
    """What is planted in a text, also where bytes are shown as hexadecimal."""
    return {word for word in WORDS if word in text or word.encode().hex() in text}


@pytest.mark.ci
@pytest.mark.timeout(1800)
def test_nothing_leaves(airflow: RunningAirflow, parrot: Parrot, emulator: Emulator, crm: Database) -> None:
    run_id = airflow.start_run("leaks")
    airflow.unpause("heard", watches_assets=True)
    waiting: set[str] = set()

    def over() -> bool:
        waiting.update(row for _, row in rows_of(airflow, "trigger"))
        return airflow.run_states("leaks")[run_id] in FINISHED

    wait_until(over, what="end of the run", timeout=1200)
    (heard,) = wait_until(lambda: airflow.api.runs("heard"), what="a run for a campaign")
    assert airflow.wait_for_run("heard", heard["dag_run_id"]) == "success"

    tasks = airflow.tasks("leaks", run_id)
    assert OPERATORS.keys() <= {task["operator"] for task in tasks.values()}
    ends = {task_id: task["state"] for (task_id, _), task in tasks.items()}
    assert {task_id for task_id, state in ends.items() if state == "success"} == GREEN
    assert {state for task_id, state in ends.items() if task_id not in GREEN} == {"failed"}

    # There was something to tell.
    assert {*ANSWERS, *LATER, "hang_up", "silent", "good"} <= parrot.seen.keys()
    assert {*PLANTED.values(), SECRETS["key"]} - {PLANTED["gone"]} <= parrot.told
    assert [contact["email"] for contact in emulator.contacts("friends")] == [PLANTED["address"]]
    assert emulator.contact(PLANTED["gone"]) is None
    assert emulator.webhook()["transCallbackUrl"] == PLANTED["callback"]
    # Of a query, of a task, and when a task and the run have failed.
    wait_until(lambda: len(emulator.messages(recipient=PLANTED["address"])) == 4, what="four messages")
    with crm.connect() as connection:
        assert connection.execute("SELECT email FROM mail_contacts").fetchall() == [(PLANTED["address"],)]

    def logged() -> dict[Path, str] | None:
        files = dict(files_below(airflow.home))
        return files if any("poll failed" in text and "mail_heard" in text for text in files.values()) else None

    files = wait_until(logged, what="a poll that failed", interval=1)
    rows = [*rows_of(airflow), *(("trigger", row) for row in waiting)]
    logs = "\n".join(text for path, text in files.items() if "run_id=" in str(path))

    # There is something to find, in every place.
    assert "canary-printed" in logs
    assert "send_request_headers" in logs, "httpcore tells what it does"
    canaries = {"trigger": "spring refused_later", "rendered_task_instance_fields": "canary-rendered",
              "xcom": "canary-pushed", "asset_event": "spring heard"}  # fmt: skip
    for place, word in (canaries | ({"task_state_store": "under_way"} if AIRFLOW_VERSION >= (3, 3) else {})).items():
        assert any(word in row for table, row in rows if table == place), place

    places = [(f"table {table}", row) for table, row in rows]
    for path, text in files.items():
        if found(text):
            places += [(str(path.relative_to(airflow.home)), line) for line in text.splitlines()]
    assert [f"{place}: {found(text)} in {text[:1500]}" for place, text in places if found(text)] == []
