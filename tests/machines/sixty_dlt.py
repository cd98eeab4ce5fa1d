"""What dlt makes of the days of `sixty_days`, in a DuckDB of its own, beside a loader of the windows that it read."""

from __future__ import annotations

import datetime
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from dlt.pipeline.exceptions import PipelineStepFailed

from airflow_provider_mail import _dlt_resources, dlt_source
from airflow_provider_mail.api import ClientConfig, MailClient
from airflow_provider_mail.dlt_source import mail_source
from tests.machines.sixty_days import (
    BACK,
    CAMPAIGNS,
    COUNTS,
    DAY,
    DAYS,
    SNAPSHOTS,
    START,
    STATS,
    Account,
    Loader,
    World,
)
from tests.tasks.dlt_loads import Duck
from tests.tasks.loading import CAMPAIGN_STATS, TRANSACTIONAL_STATS, windows


class Lake:
    """The pipeline of one account."""

    def __init__(self, world: World, account: Account, folder: Path) -> None:
        folder.mkdir()
        self.world, self.account = world, account
        self.duck, self.loader = Duck(folder), Loader()
        self.moved: dict[str, str] = {}
        self.arrow = world.chance.random() < 0.5
        service = account.service
        self.client = MailClient(ClientConfig(base_url=service.base_url, api_key=service.api_key))

    def load(self) -> None:
        """Run the pipeline; a failed one leaves every table as it was."""
        world, account, at = self.world, self.account, self.world.now()
        world.lie()
        first, last = f"{(at - BACK * DAY).date()}", f"{at.date()}"
        names = world.stored_names(self.loader, account, first, last)
        mails = world.mails_of(account, (at.date() - back * DAY for back in range(BACK + 1)))
        is_short = bool(names) and world.chance.random() < 0.15
        disturbance = world.short(account, CAMPAIGN_STATS, names) if is_short else None
        disturbance = disturbance or world.zeros(account, self.loader, mails)
        campaigns, ids = world.campaigns_of(account), account.list_ids()
        is_large = world.is_large_loss(self.loader, account.conn_id, account.service.settings.team_name, campaigns)
        is_moved = any(self.moved.get(name, ids[name]) != ids[name] for name in ids)
        account.service.journal.clear()
        is_green = world.executed(disturbance or nullcontext(), lambda: self._run(at))
        if not is_green and not disturbance:
            assert is_large or is_moved, world.error
            account.service.journal.clear()
            is_green = world.executed(nullcontext(), lambda: self._run(at, max_removed_fraction=1, allow_empty=True))
            assert is_green, world.error
        if is_green:
            self.moved = ids
            self._note(f"{at.isoformat()}", campaigns)
        self.compare()

    def _run(self, at: datetime.datetime, **options: Any) -> None:
        source = mail_source(
            self.client, start_day=(START - BACK * DAY).date(), lookback_days=BACK, contact_lists="all", snapshots=True,
            arrow=self.arrow, mail_conn_id=self.account.conn_id, team_name=self.account.team,
            **options,
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            for module in (dlt_source, _dlt_resources):
                patch.setattr(module, "now", lambda: at)
            tables = (STATS, SNAPSHOTS, DAYS, CAMPAIGNS, "mail_contacts")
            self.duck.pipeline.run(source.with_resources(*tables))

    def _note(self, at: str, campaigns: list[tuple[Any, ...]]) -> None:
        """What was asked, and so is in the tables."""
        world, account, loader = self.world, self.account, self.loader
        for first, last in sorted({*windows(account.service, CAMPAIGN_STATS)}):
            loader.stats(account.key, at, first, last, world.answer(account, first, last))
        for first, last in sorted({*windows(account.service, TRANSACTIONAL_STATS)}):
            begin, end = map(datetime.date.fromisoformat, (first, last))
            days = (begin + number * DAY for number in range((end - begin).days + 1))
            loader.mails(account.key, at, world.mails_of(account, days))
        loader.all_campaigns(account.conn_id, account.service.settings.team_name, at, campaigns)
        loader.rows("DELETE FROM people")
        for name in account.lists:
            loader.contacts(account.key, at, name, "", account.people(name), set())

    def compare(self) -> None:
        gone, counts = "gone_at IS NOT NULL", ", ".join(COUNTS)
        for ours, theirs in (
            (f"mail_name, {counts}, {gone} FROM {STATS}", f"name, {counts}, gone IS NOT NULL FROM stats"),
            (f"mail_name, observed_day, {counts} FROM {SNAPSHOTS}", f"name, day, {counts} FROM snapshots"),
            (f"stats_date, sent_count FROM {DAYS}", "day, sent FROM mails"),
            (
                f"guid, mail_name, subject, {gone} FROM {CAMPAIGNS}",
                "guid, name, subject, gone IS NOT NULL FROM campaigns",
            ),
            ("list_name, id FROM mail_contacts", "list, id FROM people"),
        ):
            if not self.loader.rows(f"SELECT {theirs}"):
                continue
            found, expected = (
                sorted(tuple(f"{int(value) if isinstance(value, bool) else value}" for value in row) for row in rows)
                for rows in (self.duck.query(f"SELECT {ours}"), self.loader.rows(f"SELECT {theirs}"))
            )
            assert found == expected, (ours, {*found} - {*expected}, {*expected} - {*found})


World.more_errors = (PipelineStepFailed,)
