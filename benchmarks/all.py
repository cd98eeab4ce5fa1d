"""All operations that write or read in bulk, against what a user writes: one table, with medians and spread.

    python benchmarks/all.py [--turns 5] [--minutes 35] [--before CHECKOUT] [--only WORD ...] [--write] [--quick]

Each figure is that of a fresh process; in each turn everything runs once, in another order.
`--before` measures the package of another checkout of the project in the same turns, `--write` puts the table into
docs/performance.md. With `--quick`, sizes are small, each job has one opponent, and the command fails when a ratio has
grown by a fourth over what `EXPECTED` says: `make bench-quick`. The opponents are in `benchmarks/*/variants.py` and
share no code with the package: `loop` is one request after the other, `careful` 16 threads with kept connections,
`bound` as fast as Python can, without checks. On a machine with other work, trust the ratios of CPU time alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.contact_export import measuring as exports  # noqa: E402
from benchmarks.contact_import import measuring as imports  # noqa: E402
from benchmarks.contact_import import sink as sinks  # noqa: E402
from benchmarks.contact_import.tables import TABLES, databases, files  # noqa: E402
from benchmarks.line import line_name, reached  # noqa: E402
from benchmarks.stats_load import measuring as statistics_loads  # noqa: E402
from benchmarks.support import MEASURED_ROOT, Result, measured, postgres, print_conditions, served  # noqa: E402
from benchmarks.webhook_drain import measuring as drains  # noqa: E402

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- benchmarks/all.py: begin -->\n", "<!-- benchmarks/all.py: end -->"
LEGEND = """\
How long the operators take, over how long others take for the same: a *loop* with one request after the other, on kept
connections or on a *new* one for each; a *careful* user's program, with 16 threads and kept connections; and a *bound*,
as fast as Python can without any check. Medians of up to five turns; seconds, CPU seconds and MiB: operator / other."""
LINE = (50, True)
"""The line: 50 ms, with TLS."""
MORE = 1.25
"""How much a ratio may grow before `--quick` fails."""

Results = dict[str, Result]
Job = Callable[[], Results]


@dataclass(frozen=True)
class Row:
    """A row of the table: how long ours takes, over how long an opponent takes.

    :param ours: the name of the job that is measured; its opponent's is ``other``.
    :param of: the figure that is compared.
    :param aim: the largest ratio that is wanted.
    """

    title: str
    ours: str
    other: str
    of: Literal["seconds", "cpu"] = "seconds"
    aim: float | None = None

    @property
    def is_quick(self) -> bool:
        """Whether it is measured with ``--quick``: one opponent for each kind of code."""
        others = ("loop new", "TLS: loop", "careful", "deletion", "lists", "senders", "templates")
        return self.ours.startswith("first task") or not any(word in self.other for word in others)


def rows() -> Iterator[Row]:
    """Yield the rows of the table."""
    for in_flight, aims in ((1, (0.9, None, None)), (8, (None, 0.2, None))):
        ours = f"batch ours {in_flight}, {line_name(*LINE)}"
        for aim, other in zip(aims, ("loop new", "loop", "careful"), strict=True):
            yield Row(f"batch, {in_flight} in flight, line", ours, f"batch {other}, {line_name(*LINE)}", aim=aim)
    yield Row("batch, no latency, CPU", "batch ours 1, 0 ms", "batch loop, 0 ms", "cpu", 2.1)
    yield Row("batch with a memory, no latency, CPU", "batch remembered 1, 0 ms", "batch ours 1, 0 ms", "cpu", 1.3)
    line = line_name(*LINE)
    yield Row("batch with a memory, 8 in flight, line", f"batch remembered 8, {line}", f"batch ours 8, {line}", aim=1.3)
    for kind in ("upsert", "upsert async", "creation", "deletion", "lists", "senders", "templates"):
        ours = f"{kind} ours, {line_name(*LINE)}"
        yield Row(f"{kind}, one by one, line", ours, f"{kind} loop new, {line_name(*LINE)}", aim=1.1)
        yield Row(f"{kind}, one by one, line", ours, f"{kind} loop, {line_name(*LINE)}", aim=1.6)
    for source in ("Postgres", "SQLite"):
        for latency, tls in ((0, False), LINE):
            line = line_name(latency, tls)
            aim = {"Postgres": (1.15, 1.0), "SQLite": (0.95, 0.9)}[source][bool(latency)]
            ours, where = f"import {source}, {line}", "line" if latency else "no latency"
            if latency:
                yield Row(f"import from {source}, {where}", f"{ours}: ours", f"{ours}: loop")
            yield Row(f"import from {source}, {where}", f"{ours}: ours", f"{ours}: careful", aim=aim)
            yield Row(f"import from {source}, {where}", f"{ours}: ours", f"{ours}: bound")
            yield Row(f"0.5 % bad rows from {source}, {where}", f"{ours}: bad rows", f"{ours}: ours", aim=1.15)
    for source in ("CSV", "Parquet"):
        ours = f"import {source}, {line_name(*LINE)}"
        yield Row(f"import of {source}, line", f"{ours}: ours", f"{ours}: careful", aim=1.1)
    yield Row("drain of events", "drain: ours", "drain: bound", aim=1.3)
    for source in ("Postgres", "SQLite"):
        for load in ("first", "again"):
            ours = f"statistics {source}, {load}"
            yield Row(f"statistics into {source}, {load}", f"{ours}: ours", f"{ours}: loop")
            yield Row(f"statistics into {source}, {load}", f"{ours}: ours", f"{ours}: bound", aim=1.25)
    for latency, tls in ((0, False), LINE):
        ours, where = f"export, {line_name(latency, tls)}", "line" if latency else "no latency"
        yield Row(f"export of contacts, {where}", f"{ours}: ours", f"{ours}: careful")
        yield Row(f"export of contacts, {where}", f"{ours}: ours", f"{ours}: bound", aim=1.6)
    yield Row("task of 100 rows, with its imports", "first task: ours", "first task: careful", aim=1.65)


# Ratios of `--quick`, by the names of two jobs and the compared figure.
EXPECTED: Mapping[str, float] = json.loads((Path(__file__).parent / "expected.json").read_text())


@dataclass(frozen=True)
class Sizes:
    """How much each job moves."""

    mails: int = 5_000
    mails_in_flight: int = 20_000
    writes: int = 20
    contacts: int = 1_000_000
    pushes: int = 100
    records: int = 100_000
    exported: int = 500_000


QUICK = Sizes(1_000, 3_000, 10, 200_000, 40, 30_000, 60_000)


class Jobs:
    """All jobs by name.

    :param home: a folder for databases and Airflow.
    """

    def __init__(self, home: Path, sizes: Sizes, stack: ExitStack) -> None:
        self._home, self._sizes = home, sizes
        self._server = stack.enter_context(postgres(home / "server"))
        self._sources: dict[str, str] = stack.enter_context(databases(home / "sources", sizes.contacts))
        few = stack.enter_context(databases(home / "few", 100))
        self._few = few["SQLite"]
        self._files = files(home, sizes.contacts)
        self._places = stack.enter_context(statistics_loads.places(home / "places"))
        self._stats = stack.enter_context(served("benchmarks.stats_load.service", sizes.records))

    def all(self) -> dict[str, tuple[bool, Job]]:
        """Return the jobs by name, and whether they are measured with an earlier package, too."""
        jobs: dict[str, tuple[bool, Job]] = {}
        for line in ((0, False), LINE):
            name = line_name(*line)
            batches = ["ours 1", "loop"]
            batches += ["ours 8", "remembered 8", "loop new", "careful"] if line == LINE else ["remembered 1"]
            variants = [f"batch {variant}" for variant in batches]
            if line == LINE:
                kinds = ("upsert", "upsert async", "creation", "deletion", "lists", "senders", "templates")
                variants += [f"{kind} {who}" for kind in kinds for who in ("ours", "loop", "loop new")]
            for variant in variants:
                # Earlier benchmarks have only these.
                is_ours = variant.startswith(("batch ours", "upsert ours", "creation ours"))
                jobs[f"{variant}, {name}"] = is_ours, partial(self._send, variant, line)
            for source in ("Postgres", "SQLite"):
                opponents = (
                    ("careful", "careful"),
                    ("bound", "floor"),
                    *([("loop", "http_hook")] if line == LINE else []),
                )
                for who, variant in (("ours", "ours"), *opponents):
                    jobs[f"import {source}, {name}: {who}"] = (
                        who == "ours",
                        partial(self._import, source, line, variant, TABLES[0]),
                    )
                jobs[f"import {source}, {name}: bad rows"] = (
                    True,
                    partial(self._import, source, line, "ours", TABLES[1]),
                )
            for who, variant in (("ours", "ours"), ("careful", "careful"), ("bound", "floor")):
                jobs[f"export, {name}: {who}"] = who == "ours", partial(self._export, line, variant)
        for source in ("CSV", "Parquet"):
            for who, variant in (("ours", "file"), ("careful", "careful")):
                # Nor files.
                jobs[f"import {source}, {line_name(*LINE)}: {who}"] = False, partial(self._file, source, variant)
        for who, variant in (("ours", "ours"), ("bound", "copy")):
            jobs[f"drain: {who}"] = who == "ours", partial(self._drain, variant)
        for source in ("Postgres", "SQLite"):
            for who, variant in (("ours", "ours"), ("loop", "http_hook"), ("bound", "limit")):
                jobs[f"statistics {source}, %: {who}"] = who == "ours", partial(self._statistics, source, variant, who)
        for who in ("ours", "careful"):
            jobs[f"first task: {who}"] = who == "ours", partial(self._first, who)
        return jobs

    def _send(self, variant: str, line: tuple[int, bool]) -> Results:
        sizes = self._sizes
        count = sizes.writes
        if variant.startswith("batch"):
            is_slow = line == LINE and variant in ("batch ours 1", "batch loop new")
            count = sizes.mails if is_slow else sizes.mails_in_flight
        command = [sys.executable, "-m", "benchmarks.batch.variants", variant]
        with sinks.running() as sink, reached(sink.port, line[0], self._home, tls=line[1]) as address:
            result, records = measured(variant, command, home=self._home, address=address, BENCHMARK_COUNT=str(count))
        if records != count:
            raise RuntimeError(f"{variant}: {records} instead of {count}")
        scale = sizes.mails_in_flight / count if variant.startswith("batch") else 1.0
        return {"": Result(result.seconds * scale, result.cpu * scale, result.memory)}

    def _import(self, source: str, line: tuple[int, bool], variant: str, table: str) -> Results:
        case = imports.Case(line[0], variant, table, tls=line[1])
        return {"": imports.measure(case, self._sources[source], self._sizes.contacts, self._home)}

    def _file(self, source: str, variant: str) -> Results:
        command = [sys.executable, "-m", "benchmarks.contact_import.variants", variant]
        with sinks.running() as sink, reached(sink.port, LINE[0], self._home, tls=LINE[1]) as address:
            path = str(self._files[source])
            result, records = measured(source, command, home=self._home, address=address, BENCHMARK_FILE=path)
        if records != self._sizes.contacts:
            raise RuntimeError(f"{source}, {variant}: {records} contacts")
        return {"": result}

    def _first(self, variant: str) -> Results:
        command = [sys.executable, str(ROOT / "benchmarks" / "contact_import" / "first_task.py"), variant]
        environment = {
            "AIRFLOW_CONN_CONTACTS_DB": self._few,
            "BENCHMARK_SQL": "SELECT email, name, phone FROM contacts",
        }
        with sinks.running() as sink, reached(sink.port, 0, self._home) as address:
            return {"": measured(variant, command, home=self._home, address=address, **environment)[0]}

    def _export(self, line: tuple[int, bool], variant: str) -> Results:
        case = exports.Case(variant, line[0], self._sizes.exported, line[1])
        return {"": exports.measure(case, self._server, self._home)}

    def _drain(self, variant: str) -> Results:
        return {"": drains.measure(variant, self._sizes.pushes, self._server, self._home)}

    def _statistics(self, source: str, variant: str, who: str) -> Results:
        place = next(self._places[source])
        return {
            f"statistics {source}, {load}: {who}": statistics_loads.measure(
                variant, place, self._stats.port, self._sizes.records, self._home
            )
            for load in ("first", "again")
        }


@contextmanager
def package_of(root: Path | None) -> Iterator[None]:
    """Measure the package of another checkout."""
    if root:
        os.environ[MEASURED_ROOT] = str(root)
    yield
    os.environ.pop(MEASURED_ROOT, None)


def run(jobs: Mapping[str, tuple[bool, Job]], turns: int, before: Path | None, end: float) -> dict[str, list[Result]]:
    """Run all jobs in each turn; return the results by name; those of `before` have a prefix.

    :param end: no turn but the first begins that would last longer than this time of the monotonic clock.
    """
    results: dict[str, list[Result]] = defaultdict(list)
    order = [(name, job, root) for name, (is_ours, job) in jobs.items() for root in (None, before if is_ours else None)]
    order = list(dict.fromkeys(order))
    longest = 0.0
    for turn in range(turns):
        began = time.monotonic()
        if turn and began + longest > end:
            print(f"no time is left for more than {turn} of {turns} turns", file=sys.stderr, flush=True)
            break
        for name, job, root in random.sample(order, len(order)):
            with package_of(root):
                for own, result in job().items():
                    results[("before: " if root else "") + (own or name)].append(result)
        longest = max(longest, time.monotonic() - began)
        left = (turns - turn - 1) * longest / 60
        print(f"turn {turn + 1} of {turns}: {longest:.0f} s, {left:.0f} min left", file=sys.stderr, flush=True)
    return results


def ratio(row: Row, results: Mapping[str, Sequence[Result]], prefix: str = "") -> list[float]:
    """Return the ratios of a row by turn; none if it was not measured."""
    opponent = prefix + row.other if prefix + row.other in results else row.other
    ours, other = (results.get(name, ()) for name in (prefix + row.ours, opponent))
    return [getattr(one, row.of) / getattr(two, row.of) for one, two in zip(ours, other, strict=False)]


def lines(results: Mapping[str, Sequence[Result]], has_before: bool) -> Iterator[str]:
    """Yield the table in Markdown."""
    yield f"| job | against | {'before: ratio | ' if has_before else ''}ratio | from, to | seconds | CPU | MiB | aim |"
    yield f"|---|---|{'---|' if has_before else ''}---|---|---|---|---|---|"
    for row in rows():
        if not (ratios := ratio(row, results)):
            continue
        seconds, cpu, memory = (
            " / ".join(
                f"{statistics.median(getattr(one, field) for one in results[name]):.{digits}f}"
                for name in (row.ours, row.other)
            )
            for field, digits in (("seconds", 2), ("cpu", 2), ("memory", 0))
        )
        earlier = ratio(row, results, "before: ")
        before = f"{statistics.median(earlier):.2f} | " if earlier else "- | " if has_before else ""
        opponent = row.other.partition(": ")[2] or row.other.partition(",")[0].partition(" ")[2]
        aim = "" if row.aim is None else f"{row.aim:g}"
        spread = f"{min(ratios):.2f}, {max(ratios):.2f}"
        median = statistics.median(ratios)
        yield f"| {row.title} | {opponent} | {before}{median:.2f} | {spread} | {seconds} | {cpu} | {memory} | {aim} |"


def regressions(results: Mapping[str, Sequence[Result]]) -> tuple[dict[str, float], list[str]]:
    """Return the ratios of the best turns, and those that have grown."""
    found, grown = {}, []
    for row in rows():
        names = row.ours, row.other
        if not all(results.get(name) for name in names):
            continue
        # Latency hides CPU time, and other work lengthens seconds: each where it says most.
        fields = ("seconds",) if "TLS" in row.ours else ("cpu", "seconds")
        for field in fields:
            best = [min(getattr(result, field) for result in results[name]) for name in names]
            key = f"{row.ours} / {row.other}: {field}"
            found[key] = round(best[0] / best[1], 2)
            if (expected := EXPECTED.get(key)) and found[key] > MORE * expected:
                grown.append(f"{key}: {found[key]} instead of {expected}")
    return found, grown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, help="default: 5, or 2 with --quick")
    parser.add_argument("--before", type=Path, help="another checkout of the project")
    parser.add_argument("--only", nargs="+", default=[], help="jobs whose names have one of these words")
    parser.add_argument("--write", action="store_true", help="write the table to docs/performance.md")
    parser.add_argument("--quick", action="store_true", help="small sizes; fail if something became slower by a third")
    parser.add_argument("--expect", action="store_true", help="with --quick: what was measured is expected from now on")
    parser.add_argument("--minutes", type=float, help="fewer turns if it took longer; default: 35, or 5 with --quick")
    arguments = parser.parse_args()
    turns = arguments.turns or (2 if arguments.quick else 5)
    end = time.monotonic() + 60 * (arguments.minutes or (5 if arguments.quick else 35))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        jobs = Jobs(Path(folder), QUICK if arguments.quick else Sizes(), stack).all()
        if arguments.quick:
            quick = {name for row in rows() if row.is_quick for name in (row.ours, row.other)}
            jobs = {name: job for name, job in jobs.items() if name.replace("%", "first") in quick}
        if arguments.only:
            jobs = {name: job for name, job in jobs.items() if any(word in name for word in arguments.only)}
        results = run(jobs, turns, arguments.before, end)
    turns = max(map(len, results.values()))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    print_conditions(f"commit {commit.stdout.strip()}, {turns} turns", turns)
    table = "\n".join(lines(results, bool(arguments.before))) + "\n"
    print(table)
    if arguments.quick:
        found, grown = regressions(results)
        if arguments.expect:
            text = json.dumps({**EXPECTED, **found}, indent=1, sort_keys=True)
            (Path(__file__).parent / "expected.json").write_text(f"{text}\n")
        elif unknown := found.keys() - EXPECTED.keys():
            sys.exit("not known how fast these were; --expect stores it:\n" + "\n".join(sorted(unknown)))
        elif grown:
            sys.exit("slower than expected:\n" + "\n".join(grown))
    if arguments.write:
        page = PAGE.read_text()
        if BEGIN not in page:
            page += f"\n## Against what a user writes\n\n{LEGEND}\n\n{BEGIN}{END}\n"
        begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
        PAGE.write_text(f"{page[:begin]}\n{table}\n{page[end:]}")


if __name__ == "__main__":
    main()
