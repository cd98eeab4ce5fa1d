"""Importing contacts in several chunks at once: every row is at the service, or told of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_provider_mail.api.flows.import_contacts import batches, import_contacts
from airflow_provider_mail.api.flows.import_plan import ImportPlan, Progress
from airflow_provider_mail.api.flows.validate_rows import Reject, Row
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import Driver, SyncDriver
from tests.faults.flows import FlowWorkload
from tests.faults.workload import Finding, Said, Wrong

IN_CHUNK, CHUNKS = 4, 6


def addresses(count: int = IN_CHUNK * CHUNKS) -> list[str]:
    return [f"p{number}@example.com" for number in range(count)]


class Import(FlowWorkload):
    """Chunks under way at once."""

    # Two threads for one client; there is no import in an event loop.
    colours = ("sync",)

    def __init__(self, how: str, bad: list[str], **settings: Any) -> None:
        self.name = f"import contacts, {how}"  # type: ignore[misc]
        self.settings = settings  # type: ignore[misc]
        self._rows: list[Row] = [(address, "Person") for address in addresses()]
        for place, address in enumerate(bad):
            self._rows[place * 7 + 2] = (address, "Bad")
        self._progress = Progress()
        self._rejects: list[Reject] = []

    def act(self, client: Driver, service: Emulator) -> Any:
        self._progress, self._rejects = Progress(), []
        assert isinstance(client, SyncDriver)
        plan = ImportPlan(properties=("email", "name"), list_name="customers", chunk_size=IN_CHUNK, max_in_flight=2)
        return import_contacts(
            client.client,
            batches(self._rows, IN_CHUNK),
            plan,
            on_reject=self._rejects.append,
            progress=self._progress,
        )

    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        held = {contact["email"] for contact in service.contacts("customers")}
        aside = [str(reject.row[0]) for reject in self._rejects]
        rows = [str(row[0]) for row in self._rows]
        if self._progress.accepted > len(held):
            yield Wrong.LOST, f"{self._progress.accepted} rows are said to be there, {len(held)} are"
        if self._progress.rejected != len(aside) or len(set(aside)) != len(aside) or not set(aside) <= set(rows):
            yield Wrong.UNTRUE, f"{self._progress.rejected} rows are said to be set aside, told of were {aside}"
        if said.green:
            if lost := set(rows) - held - set(aside):
                yield Wrong.LOST, f"neither there nor told of: {sorted(lost)}"
            if self._progress.accepted + self._progress.rejected != len(rows) or self._progress.read != len(rows):
                yield Wrong.UNTRUE, f"{len(rows)} rows, and {self._progress}"


IMPORTS = (
    Import("all good", []),
    Import("some bad", ["no address", "refused@example.com"], refused_addresses=("refused@example.com",)),
)
