"""Sending a batch and single writes: ours, compared with a user's loop and with a careful one of 16 threads.

    python benchmarks/send_mails.py [--mails 20000] [--writes 50] [--rounds 5] [--lines 0 50 50tls]

A service in a process of its own takes them, on loopback or over a line of 50 ms (`benchmarks/line.py`), with TLS and
without. The loops are httpx without any check and share no code with the package; *kept* uses one connection for all
requests, *new* one for each. Every measurement is a fresh process; the variants take turns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.batch.variants import VARIANTS  # noqa: E402
from benchmarks.contact_import import sink as sinks  # noqa: E402
from benchmarks.line import line_name, reached  # noqa: E402
from benchmarks.support import RATIO_HEADER, Result, measured, medians, print_conditions, print_ratio  # noqa: E402

LINES = {"0": (0, False), "50": (50, False), "50tls": (50, True)}
RATIOS = [
    ("batch, one in flight, over the loop, new connections", "batch ours 1", "batch loop new", "<= 0.9"),
    ("batch, one in flight, over the loop, kept", "batch ours 1", "batch loop", ""),
    ("batch, eight in flight, over the loop, kept", "batch ours 8", "batch loop", "<= 0.2 at 50 ms"),
    ("batch, eight in flight, over 16 threads, kept", "batch ours 8", "batch careful", ""),
    ("batch with a memory, one in flight", "batch remembered 1", "batch ours 1", "<= 1.3"),
    ("batch with a memory, eight in flight", "batch remembered 8", "batch ours 8", ""),
    ("upserts over the loop, kept", "upsert ours", "upsert loop", "<= 1.6"),
    ("upserts over the loop, new connections", "upsert ours", "upsert loop new", "<= 1.1"),
    ("creations over the loop, kept", "creation ours", "creation loop", "<= 1.6"),
    ("creations over the loop, new connections", "creation ours", "creation loop new", "<= 1.1"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mails", type=int, default=20_000, help="mails in a batch")
    parser.add_argument("--writes", type=int, default=50, help="single writes of each kind")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each line")
    parser.add_argument("--lines", nargs="+", choices=LINES, default=list(LINES), help="milliseconds, with TLS or not")
    arguments = parser.parse_args()

    print_conditions(f"{arguments.mails:,} mails, 100 a request; {arguments.writes} writes", arguments.rounds)
    for line in arguments.lines:
        latency, tls = LINES[line]
        results: dict[str, list[Result]] = defaultdict(list)
        with tempfile.TemporaryDirectory() as folder, sinks.running() as sink:
            home = Path(folder)
            with reached(sink.port, latency, home, tls=tls) as address:
                for _ in range(arguments.rounds):
                    for variant in VARIANTS:
                        count = arguments.mails if variant.startswith("batch") else arguments.writes
                        command = [sys.executable, "-m", "benchmarks.batch.variants", variant]
                        result, records = measured(
                            variant, command, home=home, address=address, BENCHMARK_COUNT=str(count)
                        )
                        if records != count:
                            raise RuntimeError(f"{variant}: {records} instead of {count}")
                        results[variant].append(result)
        print(f"\n{line_name(latency, tls):40}{'seconds':>9}{'CPU s':>8}{'MiB':>6}")
        for variant, measurements in results.items():
            seconds, cpu, memory = medians(measurements)
            print(f"{variant:40}{seconds:9.2f}{cpu:8.2f}{memory:6.0f}")
        print(RATIO_HEADER)
        for title, above, below, aim in RATIOS:
            print_ratio(title, *([one.seconds for one in results[name]] for name in (above, below)), aim)


if __name__ == "__main__":
    main()
