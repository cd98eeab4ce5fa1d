"""Whatever faults the service has: what was read is complete, what is said to be done is done, tables are whole."""

from __future__ import annotations

import pytest

from mail_emulator import Emulator
from tests.faults.audiences import AUDIENCES
from tests.faults.changes import NAMED, PREFLIGHTS
from tests.faults.loads import LOADS
from tests.faults.reads import READS
from tests.faults.trying import Trial, Workload
from tests.support.clock import Clock
from tests.support.sampling import ALL_FAULTS

MORE = 20 if ALL_FAULTS else 1


@pytest.mark.timeout(300 * MORE)
@pytest.mark.parametrize("workload", [*READS, *NAMED, *LOADS, *PREFLIGHTS, *AUDIENCES], ids=str)
def test_what_is_said_is_so(workload: Workload, emulator: Emulator, clock: Clock) -> None:
    Trial(emulator, clock).check(workload, workload.examples * MORE)
