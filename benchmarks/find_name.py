"""Finding the campaign of an exact name among many whose names contain it, as a task does before it creates one.

    python benchmarks/find_name.py [--campaigns 10000 100000] [--rounds 2] [--in-flight 16]

A service in a process of its own returns pages of 100 over a line of 50 ms with TLS (`benchmarks/line.py`). There is no
campaign of exactly that name, so all pages are read. `find_campaign` is compared with reading one page after the other.
The variants take turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from airflow_provider_mail.api import ClientConfig, GetCampaigns, MailClient, find_campaign  # noqa: E402
from benchmarks.line import reached  # noqa: E402
from benchmarks.support import print_conditions, served  # noqa: E402

LATENCY = 50
NAME = "campaign"


def page_by_page(client: MailClient) -> None:
    """Read one page after the other."""
    pages = client.pages(GetCampaigns(mail_name=NAME, page_size=100))
    if [campaign for page in pages for campaign in page if campaign.mail_name == NAME]:
        raise RuntimeError("there is no such campaign")


def ours(client: MailClient) -> None:
    """Find it as the operators do."""
    if find_campaign(client, NAME) is not None:
        raise RuntimeError("there is no such campaign")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--in-flight", type=int, default=16, help="max_in_flight of the connection")
    options = parser.parse_args()
    variants: dict[str, Callable[[MailClient], None]] = {"page by page": page_by_page, "find_campaign": ours}
    print(f"{'':16}{'campaigns':>10}{'seconds':>9}{'CPU s':>8}{'requests x round trip / in flight':>35}")
    for campaigns in options.campaigns:
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
        with (
            served("benchmarks.waiting.service", campaigns, "never") as service,
            tempfile.TemporaryDirectory() as folder,
            reached(service.port, LATENCY, Path(folder), tls=True) as address,
        ):
            config = ClientConfig(
                base_url=address.url,
                api_key="benchmark",
                max_in_flight=options.in_flight,
                ca_bundle=address.ca_bundle and str(address.ca_bundle),
            )
            for _ in range(options.rounds):
                for name, run in variants.items():
                    with MailClient(config) as client:
                        start, cpu = time.perf_counter(), time.process_time()
                        run(client)
                        results[name].append((time.perf_counter() - start, time.process_time() - cpu))
        for name, runs in results.items():
            seconds, cpu = (statistics.median(measurements) for measurements in zip(*runs, strict=True))
            in_flight = options.in_flight if name == "find_campaign" else 1
            least = campaigns / 100 * LATENCY / 1000 / in_flight
            print(f"{name:16}{campaigns:10,}{seconds:9.2f}{cpu:8.2f}{least:35.2f}")
    print_conditions(f"\nA round trip takes {LATENCY} ms", options.rounds)


if __name__ == "__main__":
    main()
