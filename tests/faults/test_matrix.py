"""The fault matrix: every operation x every fault x every position x one or several in a row.

Cases are generated: see :mod:`tests.faults.cases`. Every workload meets every fault once, at a request and with
parameters that MAIL_FAULT_SEED draws; with MAIL_ALL_FAULTS=1 all cases are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airflow_provider_mail.emulator.faults import FAULT_KINDS
from airflow_provider_mail.sensors.events import MailInboxSensor
from airflow_provider_mail.transfers.events_to_sql import MailEventsToSqlOperator
from airflow_provider_mail.transfers.object_storage_to_sql import (
    MailCreateStageTableOperator,
    MailMergeStageTableOperator,
)
from tests.faults.cases import EVERYTHING, Case, all_cases, deaths, some
from tests.faults.flow_changes import CHANGES
from tests.faults.flow_import import IMPORTS
from tests.faults.flow_reads import READS
from tests.faults.operations import effects
from tests.faults.task_data import DATA
from tests.faults.task_preflight import PREFLIGHTS
from tests.faults.task_sends import ROW_SENDS, SENDS
from tests.faults.task_waits import WAITS
from tests.faults.tasks import TaskWorkload
from tests.faults.variants import PARAMETERS, VARIANTS
from tests.faults.workload import Trial, Workload, detours
from tests.tasks.test_operators import offered

# All cases of one workload may take minutes.
pytestmark = pytest.mark.timeout(3600 if EVERYTHING else 300)

FLOWS: tuple[Workload, ...] = (*CHANGES, *IMPORTS, *READS)
TASKS: tuple[TaskWorkload, ...] = (*SENDS, *ROW_SENDS, *PREFLIGHTS, *WAITS, *DATA)


def run_matrix(trial: Trial, workload: Workload, *, with_deaths: bool = False) -> None:
    trial.prepare(workload)
    paths = trial.paths(workload, Case.none())
    cases = some([*all_cases(paths, detours(trial, workload, paths))], workload.name, workload.share)
    if with_deaths:
        cases += deaths(paths)
    for case in cases:
        trial.try_case(workload, case, plain_requests=len(paths))
    assert not trial.problems, f"{len(trial.problems)} problems:\n" + "\n".join(trial.problems[:40])


def sampled(workloads: Sequence[Workload]) -> list[Any]:
    """The first for the unit tier, and the others."""
    return [workloads[0], *(pytest.param(each, marks=pytest.mark.not_unit) for each in workloads[1:])]


@pytest.mark.parametrize("workload", [*sampled(CHANGES), *sampled(IMPORTS), *sampled(READS)], ids=str)
def test_flows(workload: Workload, flow_trial: Trial) -> None:
    run_matrix(flow_trial, workload)


@pytest.mark.parametrize("workload", [*sampled(SENDS), *sampled((*ROW_SENDS, *PREFLIGHTS, *WAITS, *DATA))], ids=str)
def test_tasks(workload: Workload, task_trial: Trial) -> None:
    run_matrix(task_trial, workload, with_deaths=True)


def test_every_operation_is_in_the_matrix(flow_trial: Trial) -> None:
    asked: set[str] = set()
    for workload in FLOWS:
        flow_trial.prepare(workload)
        asked.update(flow_trial.paths(workload, Case.none()))
    assert asked == effects().keys()


def test_every_operator_is_in_the_matrix() -> None:
    # These talk to a database alone.
    without_service = {
        MailCreateStageTableOperator,
        MailEventsToSqlOperator,
        MailInboxSensor,
        MailMergeStageTableOperator,
    }
    assert {type(workload.operator()) for workload in TASKS} | without_service == {*offered()}


def test_every_fault_is_in_the_matrix() -> None:
    """Also one that is new in the emulator."""
    assert {variant.kind.name for variant in VARIANTS} == FAULT_KINDS.keys()
    assert PARAMETERS.keys() <= FAULT_KINDS.keys()
    cases = [*all_cases(sorted(effects()), {})]
    assert {case.variant.kind.name for case in cases} == FAULT_KINDS.keys()
