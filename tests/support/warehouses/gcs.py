"""Google Cloud Storage: the part of its JSON API with which gcsfs writes and reads objects."""

from __future__ import annotations

import base64
import hashlib
import json
from email import message_from_bytes
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, request


def storage_api(folder: Path) -> Blueprint:
    """The API; an object `key` of a bucket is the file `bucket/key` in the folder."""
    api = Blueprint("storage", __name__)

    @api.post("/upload/storage/v1/b/<bucket>/o")
    def upload(bucket: str) -> dict[str, Any]:
        assert request.args["uploadType"] == "multipart", request.url
        head = f"Content-Type: {request.headers['Content-Type']}\n\n".encode()
        metadata, media = message_from_bytes(head + request.get_data()).get_payload()
        name, content = json.loads(metadata.get_payload())["name"], media.get_payload(decode=True)
        path = folder / bucket / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        md5 = base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
        return {"bucket": bucket, "name": name, "size": str(len(content)), "md5Hash": md5, "generation": "1"}

    @api.get("/download/storage/v1/b/<bucket>/o/<path:name>")
    def download(bucket: str, name: str) -> Any:
        path = folder / bucket / name
        if not path.is_file():
            return {"error": {"code": 404, "message": f"No such object: {bucket}/{name}"}}, 404
        return Response(path.read_bytes(), mimetype="application/octet-stream")

    return api
