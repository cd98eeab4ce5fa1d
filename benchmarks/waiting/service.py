"""The service of the benchmark: campaigns that are being sent until a file appears, then all are sent.

    python -m benchmarks.waiting.service CAMPAIGNS LATENCY_MS SENT_FILE

Prints its port and serves on loopback until its standard input ends; then it prints what was asked of it, as JSON. It
must never be what is waited for, so the pages are made beforehand. A campaign's content has 2,000 characters.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

from benchmarks.support import content_length

PAGE = 100
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
            "mailContent": f"<p>{'lorem ipsum ' * 166}</p>",
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


async def _serve(count: int, latency: float, sent_file: Path) -> None:
    pages = {
        status: [
            _body([_campaign(number, status) for number in range(first, min(first + PAGE, count))], count)
            for first in range(0, count, PAGE)
        ]
        for status in (SENDING, SENT)
    }
    nothing = _body([], 0)
    asked = {"pages": 0, "names": 0}

    def answer(request: bytes) -> bytes:
        status = SENT if sent_file.exists() else SENDING
        if name := re.search(rb'"mailName":\s*"campaign-(\d+)"', request):
            asked["names"] += 1
            return _body([_campaign(int(name[1]), status)], 1)
        asked["pages"] += 1
        statuses = re.search(rb'"mailStatus":\s*\[([-\d, ]*)\]', request)
        index = re.search(rb'"pageIndex":\s*(\d+)', request)
        wanted = statuses is None or str(status).encode() in statuses[1].replace(b" ", b"").split(b",")
        page = int(index[1]) - 1 if index else 0
        return pages[status][page] if wanted and page < len(pages[status]) else nothing

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                response = answer(await reader.readexactly(content_length(head)))
                await asyncio.sleep(latency)
                writer.write(response)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps(asked), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]) / 1000, Path(sys.argv[3])))
