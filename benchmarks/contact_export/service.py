"""The service of the benchmark: pages of a list of contacts.

    python -m benchmarks.contact_export.service CONTACTS

Prints its port and serves on loopback until its standard input ends; then it prints what was requested, as JSON.
It must never be the bottleneck, so a page is one text with other numbers in it.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import asdict, dataclass

from benchmarks.support import content_length

PAGE = 1000
LIST = "everybody"
_MARK = "######"
_FIRST = ("Anna", "José", "Zoë", "李", "Peter", "Ольга", "Mary", "Jürgen")


def _contact(number: int) -> str:
    contact = {
        "id": f"{_MARK}{number:03}",
        "name": f"{_FIRST[number % 8]} {_MARK}{number:03}",
        "email": f"person{_MARK}{number:03}@company{number % 97}.example.com",
        "phoneNumber": f"+49151{number:08}",
        "properties": {
            "email_bounced_flag": "0",
            "email_open_count": str(number % 40),
            "city": "Zürich" if number % 3 else "Köln",
            "plan": "gold" if number % 5 else "free",
        },
        "createDate": "2026-01-02T03:04:05Z",
        "modifyTime": "2026-03-04T05:06:07Z",
        "createUserId": 1001,
    }
    return json.dumps(contact, ensure_ascii=False)


_CONTACTS = [_contact(number) for number in range(PAGE)]
_LISTS = b'{"code":200,"message":"","lists":[{"listName":"%s"}],"totalRecords":1}' % LIST.encode()
_FULL = ",".join(_CONTACTS).encode()


def body(index: int, contacts: int) -> bytes:
    """Return the response for a page of a list; some 350 bytes for each contact.

    :param index: number of the page, from 1.
    :param contacts: number of contacts in the list.
    """
    here = max(0, min(PAGE, contacts - (index - 1) * PAGE))
    records = _FULL if here == PAGE else ",".join(_CONTACTS[:here]).encode()
    records = records.replace(_MARK.encode(), b"%06d" % index)
    return b'{"code":200,"message":"","requestId":"1","contactList":[%s],"totalRecords":%d}' % (records, contacts)


@dataclass
class Asked:
    """What a service received: pages, and the maximum number of open connections."""

    pages: int = 0
    most_connections: int = 0


async def _serve(contacts: int) -> None:
    asked, connections = Asked(), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        asked.most_connections = max(asked.most_connections, connections)
        while head := await _head(reader):
            request = await reader.readexactly(content_length(head))
            if b"/lists/get " in head:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(_LISTS), _LISTS))
                continue
            asked.pages += 1
            index = re.search(rb'"pageIndex":\s*(\d+)', request)
            answer = body(int(index[1]) if index else 1, contacts)
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
            )
            writer.write(answer)
            await writer.drain()
        connections -= 1
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps(asdict(asked)), flush=True)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
