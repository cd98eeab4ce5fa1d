"""The service of the benchmark of audiences: it knows which addresses are on which list, and nothing else.

    python -m benchmarks.audience_sink

Prints its port and serves on loopback until its standard input ends; then it prints what it got, as JSON. Addresses are
found in the bodies by a regular expression: a service that read them as JSON would be slower than what is measured.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from typing import Any

from benchmarks.support import content_length

ADDRESS = re.compile(rb'"([^"@]+@[^"]+)"')
MADE = "2025-01-01T00:00:00Z"
LIST_NAME = re.compile(rb'"listName":"([^"]*)"')


class Lists:
    """The lists by name, and the number of rows that each was sent since the last look."""

    def __init__(self) -> None:
        self.members: dict[str, set[bytes]] = {}
        self.ids: dict[str, int] = {}
        self.modified: dict[str, int] = {}
        self.rows = Counter[str]()
        self.changes = 0

    def perform(self, operation: str, body: bytes) -> dict[str, Any]:
        if operation == "contacts/imports":
            return self._import(body)
        fields = json.loads(body or b"{}")
        if operation == "contacts/list/get":
            members = self.members.get(fields["listName"])
            if members is None:
                return {"code": 404, "message": "no such list"}
            return {"contactList": [], "totalRecords": len(members)}
        if operation == "lists/get":
            names = [name for name in self.members if fields.get("search", "") in name]
            lists = [
                {
                    "Id": self._id(name),
                    "ListName": name,
                    "ListType": 1,
                    "CreateDate": MADE,
                    "ModifyDate": self._date(name),
                }
                for name in names
            ]
            return {"lists": lists, "totalRecords": len(lists)}
        if operation == "lists/add":
            self.members[fields["listName"]] = set()
        if operation == "lists/delete":
            self.members.pop(fields["listName"], None)
        if operation == "campaign/mail/get":
            return {"mailList": [], "totalRecords": 0}
        if operation == "rows":
            rows, self.rows = self.rows, Counter()
            return {"rows": rows}
        return {}

    def _import(self, body: bytes) -> dict[str, Any]:
        match = LIST_NAME.search(body)
        addresses = ADDRESS.findall(body)
        if match:
            name = match[1].decode()
            self.rows[name] += len(addresses)
            self.members.setdefault(name, set()).update(addresses)
            self.changes += 1
            self.modified[name] = self.changes
        return {}

    def _id(self, name: str) -> int:
        return self.ids.setdefault(name, len(self.ids) + 1)

    def _date(self, name: str) -> str:
        changes = self.modified.get(name, 0)
        return f"2026-01-01T{changes // 3600 % 24:02}:{changes // 60 % 60:02}:{changes % 60:02}Z"


async def _serve() -> None:
    lists = Lists()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            body = await reader.readexactly(content_length(head))
            operation = head.split(b" ", 2)[1].decode().removeprefix("/v5/")
            answer = json.dumps({"code": 200, "message": ""} | lists.perform(operation, body)).encode()
            headers = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
            writer.write(headers.encode() + answer)

    def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
        task = asyncio.ensure_future(connected(reader, writer))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=1 << 22)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps({"rows": lists.rows}), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve())
