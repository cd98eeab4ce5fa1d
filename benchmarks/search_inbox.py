"""How long the emulator's inbox searches, and what the emulator costs while its inbox is not used.

    python benchmarks/search_inbox.py [--messages 100000] [--rounds 9]

An emulator in a process of its own gets messages of about 2 kB over HTTP, each with other words, and a campaign to as
many recipients. Then the pages are requested: each search `--rounds` times, the slowest 5 % left out. A search that
comes before all messages are indexed shows what is found so far; the index is built by the requests of an open page.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mail_emulator import EmulatorProcess

VERSIONS = 100
# As in a language: 30,000 words, the n-th in proportion to 1/n.
_LETTERS = random.Random(2)
WORDS = ["".join(_LETTERS.choices("etaoinshrdlu", k=3 + number % 7)) for number in range(30_000)]
WEIGHTS = list(itertools.accumulate(1 / number for number in range(1, len(WORDS) + 1)))
SEARCHES = {
    "no condition": {},
    "a word in every mail": {"q": "customer"},
    "a word in one of 1,000": {"q": "word7x"},
    "two words": {"q": "word7x order"},
    "an address": {"q": "customer4711@"},
    "nothing": {"q": "nowhere"},
    "opened": {"status": "Opened"},
    "opened, with a word": {"status": "Opened", "q": "customer"},
    "transactional": {"kind": "transactional", "q": "word7x"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with EmulatorProcess() as emulator:
        connection = http.client.HTTPConnection(emulator.base_url.removeprefix("http://"))
        process = psutil.Process(emulator.pid)
        empty = process.memory_info().rss
        headers = {"ApiKey": emulator.api_key, "Content-Type": "application/json"}

        def post(operation: str, **body: Any) -> None:
            connection.request("POST", f"/v5/{operation}", json.dumps(body), headers)
            answer = json.loads(connection.getresponse().read())
            assert answer["code"] == 200, answer

        def get(path: str) -> bytes:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read()
            assert response.status == 200, text
            return text

        seconds = timed(lambda: fill(emulator, post, options.messages))
        memory = process.memory_info().rss - empty
        print(f"{options.messages:,} messages and a campaign to as many: {seconds:.1f} s, {memory / 2**20:.0f} MiB")
        print(f"The first page: {1000 * timed(lambda: get('/')):.0f} ms")
        count = 0

        def index() -> None:
            nonlocal count
            while b"still being indexed" in get("/?limit=1"):
                count += 1

        seconds = timed(index)
        memory = process.memory_info().rss - empty - memory
        assert emulator.inbox.search("order", kind="transactional")["total"] == options.messages
        print(f"The rest of the index: {seconds:.1f} s in {count} requests, {memory / 2**20:.0f} MiB")
        for name, query in SEARCHES.items():
            times = sorted(timed(lambda: get(f"/?{urlencode(query)}")) for _ in range(options.rounds))  # noqa: B023
            p95 = times[int(0.95 * (len(times) - 1))]
            print(f"{name:<26} median {1000 * times[len(times) // 2]:4.0f} ms   p95 {1000 * p95:4.0f} ms")
        connection.close()


def fill(emulator: EmulatorProcess, post: Callable[..., None], messages: int) -> None:
    """Send transactional messages, and a campaign to as many contacts.

    :param post: posts to an operation.
    """
    chance = random.Random(1)
    emulator.add_sender("news@example.com")
    emulator.add_list("Customer", count=messages)
    for start in range(0, messages, VERSIONS):
        versions = [
            {"to": [{"email": f"customer{number}@example.com", "name": f"Customer {number}"}], "cc": [], "bcc": [],
             "content": content(chance, number)}
            for number in range(start, min(start + VERSIONS, messages))
        ]  # fmt: skip
        post("transactional/mail/sends_customised", senderMail="news@example.com", subject="Your order",
             trackOpen=1, messageVersions=versions)  # fmt: skip
    post("campaign/mail/sends", mailName="spring", senderMail="news@example.com", sendListNames=["Customer"],
         subject="Spring for every customer", content=content(chance, 0))  # fmt: skip
    emulator.clock.advance(days=2)


def content(chance: random.Random, number: int) -> str:
    """Return about 2 kB of HTML, with the word ``wordN`` for one of 1,000 numbers."""
    words = " ".join(chance.choices(WORDS, cum_weights=WEIGHTS, k=280))
    return f"<html><body><p>Order {number}, word{number % 1000}x</p><p>{words}</p></body></html>"


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
