"""Cost against size: the import and the export of contacts, drawn as one SVG file.

    python benchmarks/growth.py [--sizes 10000 30000 100000 300000] [--jobs JOB ...] [--out build/growth.svg]

Each size is measured in a fresh process, at no latency: what is drawn is the cost of a row, not of waiting. Costs that
do not grow with the number of rows are level lines. Imports have a checkpoint in the task state store. Memory up to ten
million rows:

    python benchmarks/growth.py --sizes 10000 100000 1000000 3000000 10000000 \
        --jobs "import from Postgres" "import from SQLite"
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.contact_export import measuring as exports  # noqa: E402
from benchmarks.contact_import import measuring as imports  # noqa: E402
from benchmarks.contact_import.tables import databases  # noqa: E402
from benchmarks.support import Result, postgres, print_conditions  # noqa: E402

EXPORT = "export to Postgres"
JOBS = ("import from Postgres", "import from SQLite", EXPORT)
_IMPORTS = frozenset(JOBS) - {EXPORT}
COLORS = ("#1f77b4", "#d62728", "#2ca02c")
Measured = Mapping[str, Sequence[Result]]


def measure(size: int, jobs: Collection[str]) -> dict[str, Result]:
    """Measure jobs with a number of contacts.

    :param jobs: some of `JOBS`.
    """
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with databases(home / "source", size) if _IMPORTS.intersection(jobs) else nullcontext({}) as connections:
            for source, connection in connections.items():
                if (job := f"import from {source}") in jobs:
                    case = imports.Case(0, "ours")
                    results[job] = imports.measure(case, connection, size, home)
        if EXPORT in jobs:
            with postgres(home / "target") as server:
                results[EXPORT] = exports.measure(exports.Case("ours", 0, size), server, home)
    return results


def draw(sizes: Sequence[int], measured: Measured) -> str:
    """Draw CPU time per row and memory against size; return the SVG.

    :param measured: the results of each job, by size.
    """
    cpu = {
        job: [1e6 * result.cpu / size for result, size in zip(results, sizes, strict=True)]
        for job, results in measured.items()
    }
    memory = {job: [result.memory for result in results] for job, results in measured.items()}
    panels = _panel(0, "CPU time per row, microseconds", sizes, cpu) + _panel(420, "memory, MiB", sizes, memory)
    background = '<rect width="840" height="300" fill="#fff"/>'
    opening = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 300" font-family="sans-serif">'
    return f"{opening}{background}{panels}</svg>\n"


def _panel(left: int, title: str, sizes: Sequence[int], lines: Mapping[str, Sequence[float]]) -> str:
    """Draw one diagram, 400 wide and 300 high."""
    top = 1.2 * max(max(values) for values in lines.values())
    parts = [
        f'<text x="{left + 40}" y="20" font-size="14">{title}</text>',
        f'<path d="M{left + 40} 40V240H{left + 380}" fill="none" stroke="#666"/>',
        f'<text x="{left + 36}" y="44" font-size="11" text-anchor="end">{top:.0f}</text>',
        f'<text x="{left + 36}" y="244" font-size="11" text-anchor="end">0</text>',
    ]
    smallest, largest = math.log(min(sizes)), math.log(max(sizes))
    places = [left + 60 + 300 * (math.log(size) - smallest) / (largest - smallest or 1) for size in sizes]
    for place, size in zip(places, sizes, strict=True):
        parts.append(f'<text x="{place:.0f}" y="258" font-size="11" text-anchor="middle">{size:,}</text>')
    for number, (job, values) in enumerate(lines.items()):
        points = " ".join(f"{x:.0f},{240 - 200 * value / top:.0f}" for x, value in zip(places, values, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[number]}" stroke-width="2"/>')
        place = left + 40 + 130 * number
        parts.append(f'<text x="{place}" y="285" font-size="11" fill="{COLORS[number]}">{job}</text>')
    return "".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 30_000, 100_000, 300_000], help="contacts")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS, help="what is measured")
    parser.add_argument("--out", type=Path, default=Path("build/growth.svg"), help="the file to write")
    arguments = parser.parse_args()

    by_size = [measure(size, arguments.jobs) for size in arguments.sizes]
    measured = {job: [results[job] for results in by_size] for job in JOBS if job in arguments.jobs}
    print_conditions(f"{min(arguments.sizes):,} to {max(arguments.sizes):,} contacts", 1)
    print(f"\n{'':24}{'contacts':>12}{'seconds':>9}{'CPU us a row':>14}{'MiB over imports':>18}")
    for job, results in measured.items():
        for size, result in zip(arguments.sizes, results, strict=True):
            print(f"{job:24}{size:12,}{result.seconds:9.2f}{1e6 * result.cpu / size:14.2f}{result.memory:18.0f}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(draw(arguments.sizes, measured))
    print(f"\nDrawn in {arguments.out}")


if __name__ == "__main__":
    main()
