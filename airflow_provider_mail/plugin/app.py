"""The page: a FastAPI application that renders the warehouse tables as HTML."""

from __future__ import annotations

import datetime
import logging
import mimetypes
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial, wraps
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BeforeValidator
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import HTMLResponse, Response, StreamingResponse

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.plugin import (
    PAGE_PREFIX,
    access,
    campaign,
    campaigns,
    imports,
    lists,
    overview,
    render,
    sections,
    views,
)
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

# No database has a text with a NUL.
Text = Annotated[str, Query(max_length=400, pattern=r"^[^\x00]*$")]
# What databases can compare. The day after it and its beginning in another time zone exist as well.
EARLIEST, LATEST = datetime.date(1000, 1, 1), datetime.date(9999, 12, 29)


def _day(text: str) -> datetime.date | None:
    """Read a day as a form sends it, which is empty if none is chosen."""
    if not text:
        return None
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        raise ValueError("not a day")
    return min(max(datetime.date.fromisoformat(text), EARLIEST), LATEST)


Day = Annotated[datetime.date | None, BeforeValidator(_day)]
PageNumber = Annotated[int, Query(ge=1, le=campaigns.MOST_PAGES)]
Show: TypeAlias = Callable[..., Mapping[str, Any]]


def route(path: str, template: str) -> Callable[[Show], Show]:
    """Register a function that returns the values of a template; it runs in a thread of the page's own.

    Its tables (`Grid`) can be downloaded: ``csv=`` in the address names one. Without data, the page is `show_more`.
    """

    def register(show: Show) -> Show:
        section = next((section for section in sections.SECTIONS if section.path == path[1:]), None)

        def values(request: Request, /, **arguments: Any) -> tuple[str, Mapping[str, Any]]:
            if section and not section.has_data(request.state.mail_reader):
                return "more.html", show_more(request)
            return template, show(request=request, **arguments)

        def respond(request: Request, /, **arguments: Any) -> Response:
            with Reader.of_page() as reader:
                request.state.mail_reader = reader
                shown_template, shown = values(request, **arguments)
                menu = sections.menu(reader)
                links = access.links_to(render.tasks_in(shown["tables"].values()), request.state.mail_user)
                return render.page(shown_template, request, **shown, menu=menu, task_links=links)

        def csv(wanted: str, request: Request, /, **arguments: Any) -> Iterator[str]:
            with Reader.of_page() as request.state.mail_reader:
                tables = values(request, **arguments)[1]["tables"].values()
                table = next((table for table in tables if table.name == wanted), None)
                if table is None:
                    raise HTTPException(404, "There is no such download.")
                yield from table.csv(render.zone_of(request))

        @wraps(show)
        async def endpoint(request: Request, **arguments: Any) -> Response:
            if (wanted := request.query_params.get("csv")) is None:
                return await places.read(partial(respond, request, **arguments))
            pieces = places.stream(partial(csv, wanted, request, **arguments))
            # What fails before the first piece is shown; what fails later ends the response without its last part.
            first = await anext(pieces)
            headers = {"Content-Disposition": f'attachment; filename="mail-{wanted}.csv"'}
            return StreamingResponse(chain_pieces(first, pieces), media_type="text/csv; charset=utf-8", headers=headers)

        app.get(path)(endpoint)
        return show

    return register


async def chain_pieces(first: str, others: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for piece in others:
        yield piece


def tables(*grids: Grid | None) -> dict[str, Grid]:
    """Return tables by their names, those with a minus as templates can write them."""
    return {grid.name.replace("-", "_"): grid for grid in grids if grid}


@route("/", "overview.html")
def show_overview(request: Request) -> Mapping[str, Any]:
    reader, zone = request.state.mail_reader, render.zone_of(request)
    waits = access.waits(request.state.mail_user)
    with overview.counting_lists(reader) as counting:
        findings, measures = overview.findings(reader, waits.shown), overview.month(reader, zone)
        counted = counting()
    current, current_count = overview.current(reader, counted)
    growth = overview.growth(counted) if counted else None
    return {
        "reader": reader,
        "has_tables": any(section.tables and section.has_data(reader) for section in sections.SECTIONS),
        "waits": waits,
        "decisions": access.decisions(request.state.mail_user),
        "current_count": current_count,
        "findings": findings,
        "measures": measures,
        "tables": tables(current, overview.month_table(measures), growth),
    }


@route("/campaigns", "campaigns.html")
def show_campaigns(
    request: Request,
    q: Text = "",
    list_name: Annotated[Text, Query(alias="list")] = "",
    first: Annotated[Day, Query(alias="from")] = None,
    last: Annotated[Day, Query(alias="to")] = None,
    state: Text = "",
    account: Text = "",
    sort: Text = "sent_at",
    page: PageNumber = 1,
) -> Mapping[str, Any]:
    """Show the campaigns.

    :param q: part of the name or of the subject.
    :param last: the last day, included.
    :param account: the connection of an account; empty for all.
    :param page: the number of the page, from 1.
    """
    reader = request.state.mail_reader
    wanted = campaigns.Filter(q, list_name, first, last, state, account, sort, page)
    matches = campaigns.search(reader, wanted, render.zone_of(request))
    return {"matches": matches, "tables": tables(matches.table)}


@route("/campaign", "campaign.html")
def show_campaign(request: Request, account: Text, name: Text, team: Text = "", guid: Text = "") -> Mapping[str, Any]:
    reader = request.state.mail_reader
    details = campaign.get(reader, (account, team, name), guid)
    if details is None:
        raise HTTPException(404, "There is no such campaign here.")
    task = access.task_named(name)
    curve = details.curve
    lines = [("This campaign", curve.opens), ("Median", curve.median)] if curve else []
    return {
        "campaign": details,
        "task": access.links_to([task], request.state.mail_user).get(task, "") if task else "",
        "platform": access.platform_url(account, details),
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
    lines = [(item.label, item.curve.opens) for item in compared if item.curve]
    return {
        "campaigns": compared,
        "is_cut": len(chosen) > campaign.COMPARED,
        "lines": lines,
        "tables": tables(campaign.comparison(compared), campaign.curves_table(lines)),
    }


@route("/lists", "lists.html")
def show_lists(request: Request) -> Mapping[str, Any]:
    counted = lists.get(request.state.mail_reader)
    return {"counted": counted, "tables": tables(lists.lists_table(counted))}


@route("/transactional", "transactional.html")
def show_transactional(request: Request, account: Text = "") -> Mapping[str, Any]:
    statistics = views.transactional(request.state.mail_reader, account)
    return {"statistics": statistics, "tables": tables(views.transactional_table(statistics))}


@route("/loads", "loads.html")
def show_loads(request: Request) -> Mapping[str, Any]:
    loads = views.loads(request.state.mail_reader)
    return {"loads": loads, "tables": tables(views.loads_table(loads), views.missing_days_table(loads))}


@route("/imports", "imports.html")
def show_imports(request: Request) -> Mapping[str, Any]:
    return {"tables": tables(*imports.imports(request.state.mail_reader))}


@route("/audiences", "audiences.html")
def show_audiences(request: Request) -> Mapping[str, Any]:
    reader = request.state.mail_reader
    return {"tables": tables(imports.audiences(reader), imports.audience_runs(reader))}


@route("/events", "events.html")
def show_events(request: Request) -> Mapping[str, Any]:
    reader = request.state.mail_reader
    received = views.events(reader)
    shown = tables(received.codes, received.letters, views.differences(reader))
    return {"received": received, "inbox": views.inbox(), "tables": shown}


@route("/waits", "waits.html")
def show_waits(request: Request) -> Mapping[str, Any]:
    waits = access.waits(request.state.mail_user)
    subjects = campaign.subjects(request.state.mail_reader, {wait.mail_name for wait in waits.shown})
    decisions = access.decisions(request.state.mail_user)
    return {"waits": waits, "decisions": decisions, "tables": tables(access.waits_table(waits.shown, subjects))}


@route("/more", "more.html")
def show_more(request: Request) -> Mapping[str, Any]:
    """Show what the page has no data for, and how to have it."""
    reader = request.state.mail_reader
    return {"missing": [part for part in sections.SECTIONS if not part.has_data(reader)], "tables": {}}


@app.get("/static/{name}")
def show_file(name: str) -> Response:
    if name not in render.STATIC:
        raise HTTPException(404, "There is no such file.")
    content_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    headers = {"Cache-Control": "private, max-age=3600"}
    return Response(render.STATIC[name], media_type=content_type, headers=headers)


@app.exception_handler(StarletteHTTPException)
async def show_http_error(request: Request, error: Any) -> HTMLResponse:
    return render.error(error.status_code, str(error.detail), request)


@app.exception_handler(RequestValidationError)
async def show_bad_query(request: Request, error: RequestValidationError) -> HTMLResponse:
    """Show which part of the address is not possible, without its value."""
    names = sorted({str(problem["loc"][1]) for problem in error.errors()})
    return render.error(400, f"This value in the address is not possible: {', '.join(names)}.", request)


@app.exception_handler(MailConfigError)
@app.exception_handler(NoAnswer)
@app.exception_handler(WarehouseError)
async def show_database_error(request: Request, error: Exception) -> HTMLResponse:
    """Show why the tables cannot be read; the message has no values of rows."""
    _log.warning("The page cannot read the tables: %s", error)
    message = "The numbers cannot be read."
    if not isinstance(error, MailConfigError):
        message += " Reload this page in a minute. If that does not help, ask your engineers."
    return render.error(503, message, request, detail=str(error))
