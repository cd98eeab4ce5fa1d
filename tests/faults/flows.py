"""What can be done through the client, without Airflow: the base of all workloads that do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.emulator import Emulator
from tests.api.driving import KINDS, Driver, driver
from tests.faults.cases import Case
from tests.faults.variants import HASTY
from tests.faults.workload import Finding, Said, Workload, Wrong


class FlowWorkload(Workload):
    """Done with a client of either colour, by turns."""

    colours: tuple[str, ...] = KINDS

    def arrange(self, service: Emulator) -> None:
        """Nothing, unless a workload needs something."""

    def run(self, service: Emulator, case: Case, number: int) -> Said:
        client = driver(
            self.colours[number % len(self.colours)], config_of(service, timeout=HASTY if case.is_hasty else 10.0)
        )
        try:
            return Said(self.act(client, service))
        except Exception as error:
            return Said(error=error)
        finally:
            client.close()

    @abstractmethod
    def act(self, client: Driver, service: Emulator) -> Any:
        """Do it; what is returned is what was said."""

    def judge(self, service: Emulator, said: Said, case: Case) -> Iterator[Finding]:
        if said.error is not None and not isinstance(said.error, MailError):
            yield Wrong.FOREIGN, "not an error of the service's hierarchy"
        yield from self.held(service, said)

    @abstractmethod
    def held(self, service: Emulator, said: Said) -> Iterator[Finding]:
        """Compare what the service holds with what was said."""


def config_of(service: Emulator, **settings: Any) -> ClientConfig:
    return ClientConfig(base_url=service.base_url, api_key=service.api_key, **settings)


def done_unless_said(said: Said, done: bool, path: str) -> Iterator[Finding]:
    """A change of the service is there after success, and not there after an error that excludes it.

    :param path: of the operation that changes it; errors of others, such as of looking, exclude nothing.
    """
    if said.green and not done:
        yield Wrong.UNTRUE, "success, and it was not done"
    error = said.error
    if isinstance(error, MailError) and error.operation == path and not error.may_have_taken_effect and done:
        yield Wrong.UNTRUE, "the error says that nothing was done, and it was"
