"""The fault matrix: every operation x every fault x every position x one or several in a row.

Cases are generated: see :mod:`tests.faults.cases`. Every workload meets every fault once, at a request and with
parameters that MAIL_FAULT_SEED draws; with MAIL_ALL_FAULTS=1 all cases are run.
"""

from __future__ import annotations

import pytest

from airflow_provider_mail.emulator.faults import FAULT_KINDS
from tests.faults.cases import EVERYTHING, Case, all_cases, some
from tests.faults.flow_changes import CHANGES
from tests.faults.flow_import import IMPORTS
from tests.faults.flow_reads import READS
from tests.faults.operations import effects
from tests.faults.variants import PARAMETERS
from tests.faults.workload import Trial, Workload, detours

# All cases of one workload may take minutes.
pytestmark = pytest.mark.timeout(3600 if EVERYTHING else 300)

FLOWS: tuple[Workload, ...] = (*CHANGES, *IMPORTS, *READS)


@pytest.mark.parametrize("workload", FLOWS, ids=str)
def test_any_fault_at_any_request(workload: Workload, trial: Trial) -> None:
    trial.prepare(workload)
    paths = trial.paths(workload, Case.none())
    cases = some([*all_cases(paths, detours(trial, workload, paths))], workload.name, workload.share)
    for case in cases:
        trial.try_case(workload, case, plain_requests=len(paths))
    assert not trial.problems, f"{len(trial.problems)} problems:\n" + "\n".join(trial.problems[:40])


def test_every_operation_is_in_the_matrix(trial: Trial) -> None:
    asked: set[str] = set()
    for workload in FLOWS:
        trial.prepare(workload)
        asked.update(trial.paths(workload, Case.none()))
    assert asked == effects().keys()


def test_every_fault_is_in_the_matrix() -> None:
    """Also one that is new in the emulator."""
    quick = {name for name, kind in FAULT_KINDS.items() if kind.outcome != "slow"}
    assert PARAMETERS.keys() <= quick
    assert {case.variant.kind.name for case in all_cases(sorted(effects()), {})} == quick
