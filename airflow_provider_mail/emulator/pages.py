"""HTML pages: a start page, and a page for each campaign."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import unquote

from airflow_provider_mail.emulator.control_api import ControlApi
from airflow_provider_mail.emulator.responses import Response, html
from airflow_provider_mail.emulator.server import CAMPAIGNS
from airflow_provider_mail.emulator.service import OPERATIONS


def page(controls: ControlApi, path: str) -> Response:
    """Return the page of a path; 404 when there is none.

    :param controls: the control interface, which reads the campaigns.
    :param path: path of the request.
    """
    if path == "/":
        return html("Emulator", f"<p>{len(OPERATIONS) + 2} operations under /v5. Nothing here sends mail.</p>")
    wanted = unquote(path.removeprefix(CAMPAIGNS))
    found = [one for one in controls.campaigns() if wanted in (one["mailName"], one["guid"], str(one["id"]))]
    if not found:
        return html("There is no such campaign", f"<p>{escape(wanted)}</p>", 404)
    return _campaign(found[-1])


def _campaign(campaign: dict[str, Any]) -> Response:
    request = campaign["request"]
    state = "deleted" if campaign["removed"] else "cancelled" if campaign["cancelled"] else campaign["state"]
    rows = {
        "State": f"{state} (mailStatus {campaign['mailStatus']})",
        "Subject": request.get("subject"),
        "Sender": request.get("senderMail"),
        "Lists": ", ".join(request.get("sendListNames") or ()),
        "Send time": campaign["sendDate"],
        "Created": campaign["created"],
        "guid": campaign["guid"],
        "id": campaign["id"],
        **(campaign["mailStats"] or {}),
    }
    cells = (
        f"<tr><th align=left>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
        if value not in (None, "")
    )
    # Show the content as text, never as HTML of this page.
    content = escape(request.get("content") or "")
    return html(escape(campaign["mailName"]), f"<table>{''.join(cells)}</table><pre>{content}</pre>")
