"""The page: its parts, and a FastAPI application that renders the warehouse tables as HTML."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Annotated, Any, NamedTuple, TypeAlias

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import HTMLResponse, Response, StreamingResponse

from airflow_provider_mail._config import configured_inbox
from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.plugin import (
    PAGE_PREFIX,
    access,
    campaign,
    campaigns,
    overview,
    render,
    views,
)
from airflow_provider_mail.plugin.campaigns import Text
from airflow_provider_mail.plugin.reader import NoAnswer, Reader, places
from airflow_provider_mail.plugin.render import Grid
from airflow_provider_mail.warehouse.errors import WarehouseError

_log = logging.getLogger(__name__)


class PageApp(FastAPI):
    """Adds the headers, and works behind a proxy that strips the base path."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # Below a mount, Starlette finds no route for a path that does not begin with the whole root path.
        if not scope.get("path", "").startswith(scope.get("root_path", "")):
            scope = {**scope, "root_path": PAGE_PREFIX}

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in render.HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await super().__call__(scope, receive, send_with_headers)


# The dependency is the application's, so that no route can be without it.
app = PageApp(
    title="Mail", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(access.permitted_user)]
)


class Section(NamedTuple):
    """A part of the page.

    :param shows: what it answers, for a person who does not know the tables.
    :param tables: what it shows; one of them is enough.
    :param empty: what it says where they have no rows.
    :param guide: the page of the documentation that says how to have it.
    """

    path: str
    label: str
    title: str = ""
    shows: str = ""
    tables: Sequence[str] = ()
    empty: str = ""
    guide: str = ""

    def has_data(self, reader: Reader) -> bool:
        if self.label == "Activity" and configured_inbox() is not None:
            return True
        return not self.tables or any(map(reader.has, self.tables))


OF_CAMPAIGNS = Section("campaigns", "Campaigns")
"""That to which the pages of single campaigns belong."""

MORE = Section("more", "More")
SECTIONS = (
    Section("./", "Overview"),
    Section(
        "campaigns", "Campaigns", "Campaigns",
        "Every mass mail: when it was sent, and how many people opened and clicked.",
        ("campaign_stats", "campaigns"), "", "statistics.html",
    ),
    Section(
        "lists", "Lists", "Lists", "How many people are on each list, and how the lists grow.",
        ("contacts",), "There are no contacts yet.", "warehouse.html#contacts-of-a-list",
    ),
    Section(
        "transactional", "Transactional mail", "Transactional mail by day",
        "Receipts, password mails and the like: how many were sent, opened and bounced each day.",
        ("transactional_stats",), "There are no numbers yet.", "statistics.html",
    ),
    Section(
        "loads", "Data age", "How old the numbers are",
        "How old the numbers on this page are, and which days are missing.",
        ("loads", "campaigns"), "There are no numbers yet.", "statistics.html",
    ),
    Section(
        "imports", "Imports", "Imports of contacts",
        "How many people each import brought in, and how many were rejected and why.",
        ("imports",), "Nobody was imported yet.", "warehouse.html#imports",
    ),
    Section(
        "audiences", "Audiences", "Audiences",
        "How many people a campaign is for, and how many of them joined and left.",
        ("audience_runs",), "There is no audience yet.", "audiences.html#what-changed-and-when",
    ),
    Section(
        "events", "Activity", "Activity of the last seven days",
        "What happened to single mails, minutes after it happened: delivered, opened, bounced.",
        ("events", "dead_letters", "event_differences"), "Nothing was reported.", "events.html",
    ),
    Section(
        "waits", "Waiting", "What is waiting", "What Airflow waits for before it continues.",
        (), "Nothing waits.", "waiting.html",
    ),
)  # fmt: skip


def menu(reader: Reader) -> Sequence[Section]:
    """Return the parts that have data, and where some have none, the page about those."""
    shown = [section for section in SECTIONS if section.has_data(reader)]
    return shown if len(shown) == len(SECTIONS) else [*shown, MORE]


Show: TypeAlias = Callable[..., Mapping[str, Any]]


def route(path: str, template: str = "tables.html") -> Callable[[Show], Show]:
    """Register a function that returns the values of a template; it runs in a thread of the page's own.

    Its tables (`Grid`) can be downloaded: ``csv=`` in the address names one. Without data, the page is `show_more`.
    """

    def register(show: Show) -> Show:
        part = next(
            (section for section in (*SECTIONS, MORE) if section.path in (path[1:], f".{path}")),
            OF_CAMPAIGNS,
        )

        def pieces(request: Request, /, **arguments: Any) -> Iterator[str]:
            with Reader.of_page() as reader:
                request.state.mail_reader = reader
                has_data = part.has_data(reader)
                values = show(request=request, **arguments) if has_data else show_more(request)
                if (wanted := request.query_params.get("csv")) is not None:
                    if wanted not in values["tables"]:
                        raise HTTPException(404, "There is no such download.")
                    yield from values["tables"][wanted].csv(render.zone_of(request))
                    return
                links = access.links_to(render.tasks_in(values["tables"].values()), request.state.mail_user)
                shown = {"part": part, "at": None, **values, "menu": menu(reader), "task_links": links}
                yield render.page(template if has_data else "more.html", request, **shown)

        @wraps(show)
        async def endpoint(request: Request, **arguments: Any) -> Response:
            read = places.stream(partial(pieces, request, **arguments))
            if (wanted := request.query_params.get("csv")) is None:
                return HTMLResponse("".join([piece async for piece in read]))
            # What fails before the first piece is shown; what fails later ends the response without its last part.
            whole = chain_pieces(await anext(read), read)
            headers = {"Content-Disposition": f'attachment; filename="mail-{wanted}.csv"'}
            return StreamingResponse(whole, media_type="text/csv; charset=utf-8", headers=headers)

        app.get(path)(endpoint)
        return show

    return register


async def chain_pieces(first: str, others: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for piece in others:
        yield piece


def tables(*grids: Grid) -> dict[str, Grid]:
    return {grid.name: grid for grid in grids}


@route("/", "overview.html")
def show_overview(request: Request) -> Mapping[str, Any]:
    reader, zone = request.state.mail_reader, render.zone_of(request)
    waits = access.waits(request.state.mail_user)
    measures = overview.month(reader, zone)
    counted = overview.counted_lists(reader)
    current, current_count = overview.current(reader, counted)
    grids = [current, overview.month_table(measures), *([overview.largest(counted)] if counted is not None else ())]
    return {
        "reader": reader,
        "has_tables": any(section.tables and section.has_data(reader) for section in SECTIONS),
        "waits": waits,
        "decisions": access.decisions(request.state.mail_user),
        "current_count": current_count,
        "findings": overview.findings(reader, waits.shown),
        "measures": measures,
        "tables": tables(*grids),
    }


def wanted_campaigns(request: Request) -> campaigns.Filter:
    """Read the address: Airflow 3.0's FastAPI reads no names like ``from`` into a model."""
    try:
        return campaigns.Filter.model_validate(dict(request.query_params))
    except ValidationError as error:
        problems = [{"loc": ("query", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(problems) from None


@route("/campaigns", "campaigns.html")
def show_campaigns(
    request: Request, wanted: Annotated[campaigns.Filter, Depends(wanted_campaigns)]
) -> Mapping[str, Any]:
    matches = campaigns.search(request.state.mail_reader, wanted, render.zone_of(request))
    return {"matches": matches, "tables": tables(matches.table)}


@route("/campaign", "campaign.html")
def show_campaign(request: Request, account: Text, name: Text, team: Text = "", guid: Text = "") -> Mapping[str, Any]:
    reader = request.state.mail_reader
    details = campaign.get(reader, (account, team, name), guid)
    if details is None:
        raise HTTPException(404, "There is no such campaign here.")
    task = access.task_named(name)
    curve = details.curve
    lines = [("line-1", "This campaign", curve.opens), ("median", "Median", curve.median)] if curve else []
    return {
        "campaign": details,
        "task": access.links_to([task], request.state.mail_user).get(task, "") if task else "",
        "platform": access.platform_url(account, details),
        "lines": lines,
        "tables": tables(campaign.counts_table(details), campaign.curves_table(lines)),
    }


@route("/compare", "compare.html")
def show_comparison(request: Request, c: Annotated[list[Text], Query()] = []) -> Mapping[str, Any]:  # noqa: B006
    """Show campaigns side by side.

    :param c: the campaigns: account, team and name, quoted and separated by a slash.
    """
    chosen = campaign.chosen(c)
    reader = request.state.mail_reader
    compared = campaign.compare(reader, chosen[: campaign.COMPARED])
    curves = [(item.label, item.curve.opens) for item in compared if item.curve]
    lines = [(f"line-{number}", *line) for number, line in enumerate(curves, 1)]
    return {
        "campaigns": compared,
        "is_cut": len(chosen) > campaign.COMPARED,
        "lines": lines,
        "tables": tables(campaign.comparison(compared), campaign.curves_table(lines)),
    }


@route("/lists")
def show_lists(request: Request) -> Mapping[str, Any]:
    entries, at = views.contact_lists(request.state.mail_reader)
    return {"at": at, "tables": tables(views.lists_table(entries, views.GROWTH))}


@route("/transactional", "transactional.html")
def show_transactional(request: Request, account: Text = "") -> Mapping[str, Any]:
    """Show the days of one account; of the first one if it has none."""
    accounts = request.state.mail_reader.accounts("transactional_stats")
    account = account if account in accounts else next(iter(accounts), "")
    days = views.transactional(request.state.mail_reader, account)
    return {"accounts": accounts, "account": account, "days": days, "tables": tables(views.transactional_table(days))}


@route("/loads")
def show_loads(request: Request) -> Mapping[str, Any]:
    loads = views.loads(request.state.mail_reader)
    return {"tables": tables(views.loads_table(loads), views.missing_days_table(loads))}


@route("/imports")
def show_imports(request: Request) -> Mapping[str, Any]:
    return {"tables": tables(*views.imports(request.state.mail_reader))}


@route("/audiences")
def show_audiences(request: Request) -> Mapping[str, Any]:
    return {"tables": tables(*views.audiences(request.state.mail_reader))}


@route("/events", "events.html")
def show_events(request: Request) -> Mapping[str, Any]:
    reader = request.state.mail_reader
    *counted, at = views.events(reader)
    return {"at": at, "inbox": views.inbox(), "tables": tables(*counted, views.differences(reader))}


@route("/waits", "waits.html")
def show_waits(request: Request) -> Mapping[str, Any]:
    waits = access.waits(request.state.mail_user)
    subjects = campaign.subjects(request.state.mail_reader, {wait.mail_name for wait in waits.shown})
    decisions = access.decisions(request.state.mail_user)
    return {"decisions": decisions, "tables": tables(access.waits_table(waits, subjects))}


@route("/more", "more.html")
def show_more(request: Request) -> Mapping[str, Any]:
    """Show what the page has no data for, and how to have it."""
    reader = request.state.mail_reader
    missing = [section for section in SECTIONS if not section.has_data(reader)]
    return {"part": MORE, "missing": missing, "tables": {}}


@app.exception_handler(StarletteHTTPException)
async def show_http_error(request: Request, error: Any) -> HTMLResponse:
    return show_error(request, error.status_code, str(error.detail))


@app.exception_handler(RequestValidationError)
async def show_bad_query(request: Request, error: RequestValidationError) -> HTMLResponse:
    """Show which part of the address is not possible, without its value."""
    names = sorted({str(problem["loc"][1]) for problem in error.errors()})
    return show_error(request, 400, f"This value in the address is not possible: {', '.join(names)}.")


@app.exception_handler(MailConfigError)
@app.exception_handler(NoAnswer)
@app.exception_handler(WarehouseError)
async def show_database_error(request: Request, error: Exception) -> HTMLResponse:
    """Show why the tables cannot be read; the message has no values of rows."""
    _log.warning("The page cannot read the tables: %s", error)
    message = "The numbers cannot be read."
    if not isinstance(error, MailConfigError):
        message += " Reload this page in a minute. If that does not help, ask your engineers."
    return show_error(request, 503, message, detail=str(error))


def show_error(request: Request, status: int, message: str, *, detail: str = "") -> HTMLResponse:
    return HTMLResponse(render.error(status, message, request, detail=detail), status)
