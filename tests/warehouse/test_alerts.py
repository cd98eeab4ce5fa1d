"""The alerts that wait for a summary, in every database that has a dialect."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from tests.support.memory_parts import Alerts, AudienceKey
from tests.warehouse.conftest import Warehouse

KEY = AudienceKey(["a secret"])
PROCESSES, ALERTS_EACH = 4, 10


def alerts_in(warehouse: Warehouse) -> Alerts:
    return Alerts(warehouse.another().hook, "alerts", KEY)


def test_of_several_processes_at_once_one_sends_the_first_and_one_the_summary(native: Warehouse) -> None:
    processes = [alerts_in(native) for _ in range(PROCESSES)]
    processes[0].create()
    processes[0].create()
    digest, start = processes[0].digest_of("team"), threading.Barrier(PROCESSES)

    def report(number: int) -> list[tuple[str, int]]:
        start.wait(60)
        names = [{"title": f"{number}.{alert}"} for alert in range(ALERTS_EACH)]
        claims = [processes[number].claim(digest, name, window=600, timeout=20) for name in names]
        return [(claim, len(waiting)) for claim, waiting in claims if waiting]

    def summarize(number: int) -> list[tuple[str, int]]:
        start.wait(60)
        claims = [processes[number].claim(digest, timeout=20) for digest in processes[number].due()]
        return [(claim, len(waiting)) for claim, waiting in claims if waiting]

    with ThreadPoolExecutor(PROCESSES) as pool:
        ((first, count),) = [claim for claims in pool.map(report, range(PROCESSES)) for claim in claims]
        assert count == 1
        processes[0].settle(first, "sent")
        native.execute("UPDATE alerts SET happened_at = happened_at - 700, due_at = due_at - 700")
        ((claim, count),) = [claim for claims in pool.map(summarize, range(PROCESSES)) for claim in claims]
    assert count == PROCESSES * ALERTS_EACH - 1
    processes[0].settle(claim, "in doubt")
    assert processes[0].claim(digest, timeout=20)[1] == [], "the summary has opened a window"
    native.execute("UPDATE alerts SET happened_at = happened_at - 700, due_at = due_at - 700")
    claim, waiting = processes[0].claim(digest, {"title": "last"}, window=600, timeout=20)
    assert [alert.may_be_sent for alert in waiting] == [True] * count + [False]
    assert waiting[-1].content == {"title": "last"}
    processes[0].settle(claim, "waiting")
    native.execute("UPDATE alerts SET happened_at = happened_at - 700, due_at = due_at - 700")
    claim, waiting = processes[0].claim(digest, timeout=20)
    assert sum(alert.may_be_sent for alert in waiting) == count
    processes[0].settle(claim, "sent")
    assert processes[0].due() == []
