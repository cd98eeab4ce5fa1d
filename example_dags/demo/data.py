"""Data for the example DAGs: databases, a file in a data lake, and an email service with past campaigns."""

from __future__ import annotations

import csv
import gzip
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mail_emulator import EmulatorClient

SENDER = "news@example.com"
UNSENDABLE = 25


def make_customers(path: Path, count: int) -> None:
    """Create a customer database with a few invalid addresses.

    :param path: SQLite file.
    """
    every = max(count // UNSENDABLE, 1)

    def rows() -> Iterator[tuple[str, str, str | None]]:
        for number in range(count):
            address = f"customer{number}@example.com" if number % every else f"customer{number}(at)example.com"
            yield address, f"Customer {number}", f"+49 30 {number:07}" if number % 3 else None

    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE customers "
            "(id INTEGER PRIMARY KEY, email TEXT, full_name TEXT, phone TEXT, subscribed INT DEFAULT 1)"
        )
        database.executemany("INSERT INTO customers (email, full_name, phone) VALUES (?, ?, ?)", rows())


def make_carts(path: Path) -> None:
    """Create a shop's database: abandoned carts of yesterday, today and tomorrow, and customers who signed up lately.

    :param path: SQLite file.
    """
    today = datetime.now(UTC).date()
    rows = [
        (f"customer{number}@example.com", f"Customer {number}", item, str(today + timedelta(days=day)))
        for day in (-1, 0, 1)
        for number, item in enumerate(("Difference engine", "Key", "Cog"))
    ]
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE carts (id INTEGER PRIMARY KEY, email TEXT, name TEXT, item TEXT, left_on TEXT)")
        database.executemany("INSERT INTO carts (email, name, item, left_on) VALUES (?, ?, ?, ?)", rows)
        database.execute("CREATE TABLE customers (email TEXT, full_name TEXT, signed_up_on TEXT)")
        customers = [(f"new{day}@example.com", f"New {day}", str(today - timedelta(days=day))) for day in range(14)]
        database.executemany("INSERT INTO customers VALUES (?, ?, ?)", customers)


def make_orders(path: Path) -> None:
    """Add the open orders of two managers to the shop's database."""
    items = ("Difference engine", "Cog", "Punched card", "Key, brass", "Loom")
    rows = [
        (f"manager{number % 2}@example.com", f"Customer {number}", items[number % 5], 12.5 * (1 + number % 40),
         f"2026-02-{1 + number % 28:02}", 0)
        for number in range(2_458)
    ]  # fmt: skip
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, owner_email TEXT, customer TEXT, item TEXT, amount REAL, "
            "due_on TEXT, paid INTEGER)"
        )
        columns = "owner_email, customer, item, amount, due_on, paid"
        database.executemany(f"INSERT INTO orders ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)


def make_lake(folder: Path) -> None:
    """Create a folder that stands for a bucket, with an export of customers."""
    folder.mkdir()
    with gzip.open(folder / "customers.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("mail", "full_name"))
        writer.writerows((f"shopper{number}@example.com", f"Shopper {number}") for number in range(2_000))


def fill(emulator: EmulatorClient, contacts: int) -> None:
    """Add senders, a template, a list of people who look at tests, past campaigns and a scheduled one.

    :param contacts: number of customers in the database.
    """
    for sender in (SENDER, "shop@example.com", "old.example.com"):
        emulator.add_sender(sender)
    emulator.set_dns("mail.example.com", selector="mail")
    emulator.add_template(
        "cart_reminder", subject="You left something, {{name}}", content="<p>{{item}} is waiting for you, {{name}}.</p>"
    )
    now = emulator.clock.now()
    emulator.add_campaigns(14, prefix="weekly", first_day=(now - timedelta(days=14)).date())
    emulator.add_campaign(
        f"newsletter {now - timedelta(days=7):%Y%m%dT%H%M%S}",
        send_date=now - timedelta(days=7),
        sent=int(contacts * 0.9),
    )
    emulator.add_list("newsroom", ["editor@example.com"])
    emulator.add_campaign("spring sale", send_date=now - timedelta(days=20), sent=48_000)
    emulator.add_campaign("spring", send_date=now + timedelta(days=30), state="scheduled")
