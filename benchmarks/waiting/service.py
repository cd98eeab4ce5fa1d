"""The service of the benchmark: campaigns that are being sent until a file appears, then a thousand of them are sent.

    python -m benchmarks.waiting.service CAMPAIGNS SENT_FILE

Prints its port and serves on loopback until its standard input ends; then it prints what was requested, as JSON. It
must never be the bottleneck, so the pages are kept. A campaign's content has 500 characters.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from functools import cache
from pathlib import Path

from benchmarks.support import content_length

PAGE = 100
FINISHED = 1000
"""Campaigns that are sent when the file appears."""
SENDING, SENT = 1, 2


def campaign_name(number: int) -> str:
    """Return the name of a campaign.

    :param number: from 0.
    """
    return f"campaign-{number:06}"


def _campaign(number: int, status: int) -> str:
    stats = {"sentCount": 1000, "deliveredCount": 990, "openCount": 300, "clickCount": 40, "hardBounce": 5}
    return json.dumps(
        {
            "mailName": campaign_name(number),
            "subject": f"News {number}",
            "mailContent": f"<p>{'lorem ipsum ' * 41}</p>",
            "senderMail": "news@example.com",
            "rcptListNames": ["everybody"],
            "sendByDateTime": 1767225600000,
            "taskType": "MailList",
            "mailStatus": status,
            "guid": f"guid-{number}",
            "teamName": "sales",
            "mailStats": stats if status == SENT else None,
        }
    )


def _body(records: list[str], total: int) -> bytes:
    body = b'{"code":200,"message":"","totalRecords":%d,"mailList":[%s]}' % (total, ",".join(records).encode())
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def _serve(count: int, sent_file: Path) -> None:
    asked = {"pages": 0, "names": 0}

    @cache
    def page(index: int, status: int, finished: int) -> bytes:
        numbers = range(count)[finished:] if status == SENDING else range(count)[:finished]
        on_page = numbers[(index - 1) * PAGE : index * PAGE]
        return _body([_campaign(number, status) for number in on_page], len(numbers))

    for status, finished in ((SENDING, 0), (SENDING, FINISHED), (SENT, FINISHED)):
        for number in range(1, count // PAGE + 2):
            page(number, status, finished)

    def answer(request: bytes) -> bytes:
        finished = FINISHED if sent_file.exists() else 0
        if name := re.search(rb'"mailName":\s*"campaign-(\d+)"', request):
            asked["names"] += 1
            return _body([_campaign(int(name[1]), SENT if int(name[1]) < finished else SENDING)], 1)
        asked["pages"] += 1
        statuses = re.search(rb'"mailStatus":\s*\[([-\d, ]*)\]', request)
        index = re.search(rb'"pageIndex":\s*(\d+)', request)
        status = SENT if statuses is not None and b"2" in statuses[1] else SENDING
        return page(int(index[1]) if index else 1, status, finished)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                response = answer(await reader.readexactly(content_length(head)))
                writer.write(response)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps(asked), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), Path(sys.argv[2])))
