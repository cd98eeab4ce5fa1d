"""The main job, in a real Airflow on embedded SQLite, with the email service emulated on this machine: ``make demo``.

Makes a database of 100,000 customers, starts the emulator and all of Airflow's components, and runs the DAG of
``mail_campaign.py`` three times: between the runs a customer unsubscribes and subscribes again, and another one is
erased. Then sends the campaign
of ``mail_staged.py``: to one percent first, and to all others when the gate has read the counts. Then shows the
statistics table: when the campaigns have just gone out, and as ``mail_daily_statistics.py`` restates them on the next
two (emulated) days. At the end, it shows the events that the service pushed, also those of the mails of
``mail_transactional.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import sys
import time
import webbrowser
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from importlib.metadata import version
from pathlib import Path

from example_dags.demo.data import SENDER, UNSENDABLE, fill, make_carts, make_customers, make_lake, make_orders
from example_dags.demo.running import POLL_SECONDS, Airflow, Home, say
from mail_emulator import EmulatorProcess, EmulatorSettings

STAYS, RETURNS, ERASED = (f"customer{number}@example.com" for number in (1, 2, 3))
DAYS = 2
SENDING_SECONDS = 8.0
LEAST_CONTACTS = 40_000
CAN_ASK = not version("apache-airflow").startswith("3.0.")
"""Whether this Airflow can ask a person, and shows pages of plugins inside its own."""
SECONDS_TO_DECIDE = 10
"""Airflow fails a task whose question is answered before the scheduler has heard that its worker is done."""
STATISTICS = "SELECT * FROM mail_campaign_stats WHERE mail_name LIKE 'mail_campaign/%' ORDER BY mail_name LIMIT 1"
"""Those of the first campaign."""
STAGES = (
    "SELECT mail_name, sent_count, hard_bounce, unsubscribe_count FROM mail_campaign_stats "
    "WHERE mail_name LIKE 'newsletter %' ORDER BY sent_count"
)
EVENTS = "SELECT event_code, COUNT(*) AS event_count FROM mail_events GROUP BY 1 ORDER BY 1"
OPEN_CURVE = (
    "SELECT observed_day, sent_count, open_count, click_count FROM mail_campaign_stats_snapshots "
    "WHERE mail_name = (SELECT MIN(mail_name) FROM mail_campaign_stats WHERE mail_name LIKE 'mail_campaign/%') "
    "ORDER BY observed_day"
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m example_dags.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--contacts", type=int, default=100_000, help="customers in the database (default: 100,000)")
    parser.add_argument("--keep", action="store_true", help="keep Airflow running, to explore its UI")
    options = parser.parse_args()
    if options.contacts < LEAST_CONTACTS:
        parser.error(
            f"--contacts: at least {LEAST_CONTACTS:,}: a gate needs the counts of hundreds, one percent of them"
        )
    end_in_order()
    try:
        with ExitStack() as stack:
            show_everything(stack, options.contacts, keep=options.keep)
    except KeyboardInterrupt:
        return 0 if options.keep else 128 + signal.SIGINT
    return 0


def end_in_order() -> None:
    """Handle SIGTERM and SIGHUP like Ctrl-C; ``nohup`` still ignores SIGHUP."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def show_everything(stack: ExitStack, contacts: int, *, keep: bool) -> None:
    """Run the main job and print its results; with ``keep``, leave Airflow running afterwards.

    :param stack: closes what is started.
    :param contacts: number of customers in the database.
    :param keep: whether Airflow stays up until Ctrl-C.
    """
    home = stack.enter_context(Home())
    make_customers(home.path / "crm.db", contacts)
    make_customers(home.path / "warehouse.db", 1000)
    make_carts(home.path / "shop.db")
    make_orders(home.path / "shop.db")
    make_lake(home.path / "lake")
    say(f"A database of {contacts:,} customers, {UNSENDABLE} of them with an address that cannot be one.")
    emulator = stack.enter_context(EmulatorProcess(EmulatorSettings(sending_seconds=SENDING_SECONDS)))
    # The service's clock starts in the past, so that it shows the present at the end, after the hour of the gate.
    emulator.clock.advance(days=-DAYS, hours=-1)
    fill(emulator, contacts)
    say(f"The email service, emulated: {emulator.base_url}")
    settings = {"AIRFLOW__EMAIL__FROM_EMAIL": SENDER, "AIRFLOW__MAIL__INBOX_CONN_ID": "warehouse"}
    settings |= {"AIRFLOW__MAIL__MEMORY_CONN_ID": "warehouse"}
    settings |= {
        "AIRFLOW__MAIL__IMPORTS_CONN_ID": "warehouse",
        "AIRFLOW__MAIL__PAGE_CONN_ID": "warehouse",
    }
    settings |= {"DLT_DATA_DIR": str(home.path), "DESTINATION__DUCKDB__CREDENTIALS": str(home.path / "mail.duckdb")}
    airflow = stack.enter_context(Airflow.running(home, **settings))
    configure(airflow, home.path, emulator)
    say(f"Airflow, all of it: {airflow.url}")
    airflow.receive_events()
    airflow.create_memory()
    # What mail_resources saves.
    airflow.add("variables", key="mail_webhook_url", value=emulator.webhook()["transCallbackUrl"])

    warehouse = home.path / "warehouse.db"
    began = time.monotonic()
    airflow.run("mail_campaign")
    say(f"The whole job took {time.monotonic() - began:.0f} s. In the warehouse now:")
    show(warehouse, STATISTICS)
    say("Rows that the import rejected:")
    show(home.path / "crm.db", "SELECT field, reason, COUNT(*) AS row_count FROM newsletter_rejects GROUP BY 1, 2")

    say("One customer unsubscribes, and the job runs again:")
    change_customer(home.path / "crm.db", "UPDATE customers SET subscribed = 0", RETURNS)
    airflow.run("mail_campaign", show_results=False)
    say("That customer subscribes again, another one is erased, and the job runs again:")
    change_customer(home.path / "crm.db", "UPDATE customers SET subscribed = 1", RETURNS)
    change_customer(home.path / "crm.db", "DELETE FROM customers", ERASED)
    airflow.erase(ERASED)
    airflow.run("mail_campaign", show_results=False)
    show_who_was_mailed(emulator)

    if CAN_ASK:
        send_in_stages(airflow, emulator)
        show(warehouse, STAGES)
    else:
        say("Airflow 3.0 cannot ask a person, so the campaign in stages (mail_staged) is left out.")

    airflow.run("mail_transactional")
    say("Each manager gets a report of their own open orders, as a table and as a CSV file:")
    airflow.run("mail_report")
    for day in range(1, DAYS + 1):
        emulator.clock.advance(days=1)
        say(f"Day {day}: people open their mail. The daily job restates the statistics:")
        airflow.run("mail_daily_statistics")
    show(warehouse, STATISTICS)
    say("How the counts grew, as the daily job saw it:")
    show(warehouse, OPEN_CURVE)
    say("What the service pushed about campaigns and transactional mail:")
    emulator.flush_events()
    # The run of its schedule, which starts at the same time, may be the one that drains the inbox.
    airflow.run("mail_drain_events", show_results=False)
    show(warehouse, EVENTS)
    created = emulator.journal.counts().get("/v5/campaign/mail/sends", 0)
    say(f"Requests to create a campaign that the service received: {created}.")
    if keep:
        # A minute brings a day's opens, so that the statistics of a new campaign grow visibly.
        emulator.change_settings(engagement_days=7 / 1440, engagement_half_hours=20 / 1440)
        airflow.unpause_all()
        page = f"{airflow.url}{'/plugin/mail' if CAN_ASK else '/mail/'}"
        say(WAITING.format(url=airflow.url, page=page, home=home.path, emulator=emulator.base_url))
        open_in_browser(airflow.url, page, emulator.base_url)
        try:
            signal.pause()
        finally:
            say("Ending.")


WAITING = """
Airflow stays up at {url}
Its page of campaigns and loads is at {page}
The mail that was sent is at {emulator}
  - Every DAG can be triggered. mail_approval and mail_staged wait for your answer: see their "Required Actions".
  - mail_staged then waits an hour of the service's clock, mail_ab_test four. That clock has buttons, see below.
  - The service pushes its events to this Airflow: after mail_transactional, trigger mail_drain_events.
  - mail_on_campaign_sent starts within half a minute after a campaign of mail_campaign has gone out.
  - Connections and their test button: {url}/connections
  - Tasks link to their campaign at the emulated service. Its clock, recipients and faults have buttons there.
  - Opens of new campaigns come in within minutes: trigger mail_daily_statistics to see the counts grow.
  - Databases and files: {home}
Press Ctrl-C to end it."""


def open_in_browser(*addresses: str) -> None:
    """Open pages in a browser, unless there is no display: a text browser would take over the terminal."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        for address in addresses:
            webbrowser.open_new_tab(address)


def configure(airflow: Airflow, home: Path, emulator: EmulatorProcess) -> None:
    """Create the connections, variables and the pool of the example DAGs.

    :param home: folder with the databases.
    """
    airflow.add(
        "connections",
        connection_id="mail_default",
        conn_type="mail",
        host=emulator.base_url,
        # The test button of Airflow 3.3 needs a stored port.
        port=int(emulator.base_url.rpartition(":")[2]),
        password=emulator.api_key,
        extra=json.dumps({"campaign_url": f"{emulator.base_url}/campaigns/{{mail_name}}"}),
    )
    for name in ("crm", "shop", "warehouse"):
        # Port 0, since the test button sends and compares it for a connection without a port.
        airflow.add("connections", connection_id=name, conn_type="sqlite", host=str(home / f"{name}.db"), port=0)
    airflow.add("variables", key="mail_lake", value=f"file://{home / 'lake'}")
    airflow.add("pools", name="mail", slots=4, description="imports at once")


def send_in_stages(airflow: Airflow, emulator: EmulatorProcess) -> None:
    """Run the campaign in stages: approve it as a person, and let an hour pass at the service before the gate looks."""
    say("A campaign in stages: a test, an approval, one percent, a gate that reads their counts, and all others:")
    # Campaigns are sent when a task looks first: it would look again after a minute.
    emulator.change_settings(sending_seconds=0.0)
    polls: Counter[str] = Counter()

    def meanwhile(run: str, states: Mapping[str, str | None]) -> None:
        if states.get("approve") in ("awaiting_input", "deferred"):
            polls["asked"] += 1
            if polls["asked"] == SECONDS_TO_DECIDE / POLL_SECONDS:
                say("    You would now approve it in Airflow, under Required Actions. The demo does it for you.")
                airflow.approve(run, "approve")
        if states.get("staged_send.send_canary") == "success":
            polls["sent"] += 1
            if polls["sent"] == 1:
                emulator.clock.advance(hours=1)

    airflow.run("mail_staged", show_results=False, meanwhile=meanwhile)
    emulator.change_settings(sending_seconds=SENDING_SECONDS)


def change_customer(path: Path, statement: str, email: str) -> None:
    """Run a statement for one customer.

    :param path: SQLite file.
    """
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"{statement} WHERE email = ?", [email])


def show_who_was_mailed(emulator: EmulatorProcess) -> None:
    """Print which of three campaigns some customers got, and whether the service has them as contacts."""
    mails = {email: {mail["mailName"] for mail in emulator.mails_to(email)} for email in (STAYS, RETURNS, ERASED)}
    campaigns = sorted(mails[STAYS])
    rows = [("customer", *(f"campaign {number}" for number, _ in enumerate(campaigns, 1)), "contact")]
    for email, names in mails.items():
        mailed = ("mailed" if name in names else "-" for name in campaigns)
        rows.append((email, *mailed, "yes" if emulator.contact(email) else "no"))
    show_table(rows)
    say("")


def show(path: Path, query: str) -> None:
    """Print the result of a query: one row as lines, several as a table.

    :param path: SQLite file.
    """
    with closing(sqlite3.connect(path)) as database:
        cursor = database.execute(query)
        names = [column[0] for column in cursor.description]
        rows = cursor.fetchall()
    if len(rows) > 1:
        show_table([names, *rows])
    for row in rows if len(rows) == 1 else []:
        for name, value in zip(names, row, strict=True):
            say(f"    {name:<18} {_shown(value)}")
    say("")


def show_table(rows: Sequence[Sequence[object]]) -> None:
    table = [list(map(_shown, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        say("    " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)))


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    raise SystemExit(main())
