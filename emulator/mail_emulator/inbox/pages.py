"""The pages of the inbox, and their files."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from mail_emulator.clock import from_ms
from mail_emulator.faults import FAULT_KINDS
from mail_emulator.inbox.mails import CAMPAIGN, STATUSES, TRANSACTIONAL, NoSuchMail
from mail_emulator.responses import Response, decode_json, encode_json
from mail_emulator.service import OPERATIONS

if TYPE_CHECKING:
    from jinja2 import Environment

    from mail_emulator.control_api import ControlApi
    from mail_emulator.service import Request

HERE = Path(__file__).parent
PAGE_SIZE = 50
#: Most seconds that a page spends on indexing new messages; the rest follows with the next requests.
INDEX_SECONDS = 0.15
#: Only the files of the emulator; frames show nothing but mail.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: The content of a mail: no script, no form, no other origin, and nothing loaded from anywhere.
MAIL_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'self'"
)
#: The same with images, styles and fonts of other hosts, and links that open in a new window.
OPEN_MAIL_POLICY = (
    "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none'; style-src 'unsafe-inline' *; "
    "img-src data: *; font-src data: *; form-action 'none'; frame-ancestors 'self'"
)
HTML = "text/html; charset=utf-8"
_CONNECTING = re.compile(r"<(?=link|iframe|frame|fencedframe|object|embed)", re.IGNORECASE)
_HEADERS = (
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    # Not "no-referrer", with which a form of this page would have no Origin to compare.
    ("Referrer-Policy", "same-origin"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-DNS-Prefetch-Control", "off"),
)

Form = Mapping[str, str]


def _real_time(controls: ControlApi, form: Form) -> None:
    controls.clock.set(datetime.now(UTC))
    controls.clock.run()


def _add_fault(controls: ControlApi, form: Form) -> None:
    count = form.get("count", "1")
    params = {name.removeprefix("param_"): text for name, text in form.items() if name.startswith("param_")}
    controls.faults.add(
        form["kind"],
        form["operation"],
        count=int(count) if count else None,
        skip=int(form.get("skip") or 0),
        **{name: _value(text) for name, text in params.items()},
    )


def _value(text: str) -> Any:
    """Return the JSON value that was entered, or else the text."""
    try:
        return decode_json(text)
    except ValueError:
        return text


#: What the buttons do: functions of the control interface, with the values of a form.
ACTIONS: Mapping[str, Callable[[ControlApi, Form], object]] = {
    "advance": lambda controls, form: controls.clock.advance(float(form["seconds"])),
    "run": lambda controls, form: controls.clock.run(float(form["rate"])),
    "real-time": _real_time,
    "react": lambda controls, form: controls.inbox.react(form["mail"], form["code"]),
    "react-to-campaign": lambda controls, form: controls.inbox.react_to_campaign(
        form["mail_name"], form["code"], int(form["people"])
    ),
    "add-fault": _add_fault,
    "remove-fault": lambda controls, form: controls.faults.remove(int(form["fault"])),
    "clear-faults": lambda controls, form: controls.faults.clear(),
    "clear-requests": lambda controls, form: controls.journal.clear(),
}


class NotFound(Exception):
    """There is no such page."""


class Pages:
    """Responds to requests for the pages."""

    def __init__(self, controls: ControlApi) -> None:
        self._controls = controls
        self._pages: dict[str, Callable[[Request], Response]] = {
            "/": self._mails,
            "/inbox": self._mails,
            "/campaigns": self._campaigns,
            "/inbox/lists": self._lists,
            "/inbox/requests": self._requests,
            "/inbox/faults": self._faults,
            "/inbox/version": self._version,
        }
        #: Pages of something whose name follows; it may hold slashes.
        self._named: dict[str, Callable[[Request, str], Response]] = {
            "/campaigns/": self._campaign,
            "/inbox/mail/": self._mail,
            "/inbox/content/": self._content,
            "/inbox/source/": self._source,
            "/inbox/lists/": self._list,
            "/inbox/requests/": self._request,
            "/inbox/static/": self._file,
            "/inbox/do/": self._do,
        }

    def respond(self, request: Request) -> Response:
        """Return the page of a request."""
        path = request.path
        try:
            if path in self._pages:
                return self._pages[path](request)
            for prefix, show in self._named.items():
                if path.startswith(prefix):
                    return show(request, unquote(path.removeprefix(prefix)))
            raise NotFound(f"page {path}")
        except NotFound as error:
            return self._page("error.html", request, 404, title="Not found", what=f"There is no {error}.")
        except NoSuchMail as error:
            return self._page("error.html", request, 404, title="Not found", what=str(error))
        except KeyError as error:
            return self._page("error.html", request, 400, title="Not possible", what=f"The form has no field {error}.")
        except (ValueError, ArithmeticError) as error:
            return self._page("error.html", request, 400, title="Not possible", what=str(error))

    def _mails(self, request: Request) -> Response:
        query = {name: request.query.get(name) or None for name in ("kind", "status", "mail_name", "after")}
        text = request.query.get("q", "")
        result = self._controls.inbox.search(text, limit=PAGE_SIZE, index_seconds=INDEX_SECONDS, **query)
        result |= {"more": len(result["mails"]) == PAGE_SIZE, "statuses": STATUSES, "kinds": (TRANSACTIONAL, CAMPAIGN)}
        return self._page("mails.html", request, text=text, query=query, **result)

    def _mail(self, request: Request, mail_id: str) -> Response:
        view = request.query.get("view", "html")
        return self._page("mail.html", request, mail=self._controls.inbox.mail(mail_id), view=view)

    def _content(self, request: Request, mail_id: str) -> Response:
        content = self._controls.inbox.mail(mail_id)["content"]
        if "remote" in request.query:
            return _response(f'<base target="_blank">{content}', HTML, policy=OPEN_MAIL_POLICY)
        # The policy stops requests, but some browsers connect to the hosts that these elements name in advance.
        return _response(_CONNECTING.sub("<x-", content), HTML, policy=MAIL_POLICY)

    def _source(self, request: Request, mail_id: str) -> Response:
        return _response(self._controls.inbox.mail(mail_id)["source"], "text/plain; charset=utf-8")

    def _campaigns(self, request: Request) -> Response:
        before = _number(request.query.get("before"))
        text = request.query.get("q", "")
        campaigns = self._controls.newest_campaigns(PAGE_SIZE, before=before, containing=text)
        return self._page("campaigns.html", request, campaigns=campaigns, text=text, more=len(campaigns) == PAGE_SIZE)

    def _campaign(self, request: Request, name: str) -> Response:
        campaign = self._controls.find_campaign(name)
        if campaign is None:
            raise NotFound(f"campaign {name}")
        return self._page("campaign.html", request, campaign=campaign)

    def _lists(self, request: Request) -> Response:
        return self._page("lists.html", request, lists=self._controls.lists())

    def _list(self, request: Request, name: str) -> Response:
        contact_list = next((item for item in self._controls.lists() if item["name"] == name), None)
        if contact_list is None:
            raise NotFound(f"list {name}")
        offset = _number(request.query.get("offset")) or 0
        contacts = self._controls.contacts(name, limit=PAGE_SIZE, offset=offset)
        return self._page("list.html", request, list=contact_list, contacts=contacts, offset=offset, size=PAGE_SIZE)

    def _requests(self, request: Request) -> Response:
        text = request.query.get("q", "")
        before = _number(request.query.get("before"))
        entries = self._controls.journal.newest(PAGE_SIZE, before=before, containing=text)
        return self._page("requests.html", request, entries=entries, text=text, more=len(entries) == PAGE_SIZE)

    def _request(self, request: Request, sequence: str) -> Response:
        number = _number(sequence) or 0
        entry = next(iter(self._controls.journal.newest(1, before=number + 1)), None)
        if entry is None or entry["sequence"] != number:
            raise NotFound(f"request {sequence}")
        return self._page("request.html", request, entry=entry, answer=self._controls.journal.response(number))

    def _faults(self, request: Request) -> Response:
        faults = self._controls.faults.list()
        return self._page("faults.html", request, kinds=FAULT_KINDS, faults=faults, operations=sorted(OPERATIONS))

    def _version(self, request: Request) -> Response:
        return _response(self._controls.inbox.version(), "text/plain")

    def _file(self, request: Request, name: str) -> Response:
        file = HERE / "static" / name
        if file.parent != HERE / "static" or not file.is_file():
            raise NotFound(f"file {name}")
        return _response(file.read_text(), mimetypes.guess_type(name)[0] or "text/plain")

    def _do(self, request: Request, name: str) -> Response:
        if request.method != "POST" or name not in ACTIONS:
            raise NotFound(f"action {name}")
        form = dict(parse_qsl(request.content.decode(), keep_blank_values=True))
        ACTIONS[name](self._controls, form)
        # Only to a page of this server.
        back = urlsplit(form.get("back", "/"))
        target = quote(back.path, safe="/%:@+-._~") + (f"?{back.query}" if back.query else "")
        return Response(status=303, text="", headers=[*_HEADERS, ("Location", "/" + target.lstrip("/"))])

    def _page(self, template: str, request: Request, status: int = 200, **values: Any) -> Response:
        clock = self._controls.clock.read()
        here = request.path + (f"?{urlencode(request.query)}" if request.query else "")
        values |= {"request": request, "here": here, "operation_count": len(OPERATIONS) + 2}
        values["clock"] = {**clock, "now": datetime.fromisoformat(clock["now"])}
        text = _templates().get_template(template).render(values)
        return _response(text, HTML, status, policy=POLICY)


@cache
def _templates() -> Environment:
    # An emulator whose inbox is not used does without Jinja.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"time": _time, "pretty": _pretty, "compact": _compact, "segment": _segment}
    environment.globals |= {"query_string": _query_string, "campaign_state": _campaign_state}
    return environment


def _segment(text: object) -> str:
    return quote(str(text), safe="")


def _query_string(values: Mapping[str, Any], **changes: Any) -> str:
    return urlencode({name: value for name, value in {**values, **changes}.items() if value not in (None, "")})


def _campaign_state(campaign: Mapping[str, Any]) -> str:
    if campaign["removed"]:
        return "deleted"
    return "cancelled" if campaign["cancelled"] else str(campaign["state"])


def _compact(value: object) -> str:
    return encode_json(value).decode()


def _time(moment: str | int | datetime) -> str:
    if isinstance(moment, int):
        moment = from_ms(moment)
    elif isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _pretty(value: Any) -> str:
    """Return JSON with indentation; text that is not JSON as it is."""
    try:
        value = decode_json(value) if isinstance(value, str) else value
    except ValueError:
        return str(value)
    return msgspec.json.format(encode_json(value), indent=2).decode()


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def _response(text: str, content_type: str, status: int = 200, *, policy: str = "default-src 'none'") -> Response:
    headers = [*_HEADERS, ("Content-Security-Policy", policy)]
    return Response(status=status, text=text, content_type=content_type, headers=headers)
