"""The page: a FastAPI application that renders the warehouse tables as HTML."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import HTMLResponse, Response

from airflow_provider_mail.api.errors import MailConfigError
from airflow_provider_mail.plugin import access, campaigns, imports, lists, render, views
from airflow_provider_mail.plugin.places import NoAnswer, places
from airflow_provider_mail.plugin.reader import Reader, StaleTablesError
from airflow_provider_mail.plugin.settings import PAGE_PREFIX, PageSettings
from airflow_provider_mail.warehouse.errors import WarehouseError

_log = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every response: only the files of the page are loaded, and only Airflow may show it in a frame."""


class PageApp(FastAPI):
    """Adds the headers, works behind a proxy that strips the base path, and stops when a client disconnects."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Respond to a request; stop when the client disconnects."""
        # Below a mount, Starlette finds no route for a path that does not begin with the whole root path.
        if not scope.get("path", "").startswith(scope.get("root_path", "")):
            scope = {**scope, "root_path": PAGE_PREFIX}
        if scope["type"] != "http":
            return await super().__call__(scope, receive, send)
        is_started = False

        async def send_with_headers(message: Any) -> None:
            nonlocal is_started
            is_started = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        async def no_body() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def leave() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        answering = asyncio.create_task(super().__call__(scope, no_body, send_with_headers))
        leaving = asyncio.create_task(leave())
        try:
            await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leaving, answering):
                task.cancel()
            await asyncio.wait([answering, leaving])
        if not answering.cancelled():
            answering.result()
        elif not is_started:  # nobody reads it, but Airflow's middleware needs a response
            await Response(status_code=503)(scope, receive, send)


# The dependency is the application's, so that no route can be without it.
app = PageApp(
    title="Mail", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(access.permitted_user)]
)

# No database has a text with a NUL.
Text = Annotated[str, Query(max_length=400, pattern=r"^[^\x00]*$")]
PageNumber = Annotated[int, Query(ge=1, le=100_000)]
Show: TypeAlias = Callable[..., Response]


def route(path: str) -> Callable[[Show], Show]:
    """Register a function that renders a page; it runs in a thread of the page's own."""

    def register(show: Show) -> Show:
        def read(**arguments: Any) -> Response:
            try:
                return show(**arguments)
            except StaleTablesError:  # a table may have been dropped
                return show(**arguments)

        @wraps(show)
        async def endpoint(**arguments: Any) -> Response:
            return await places.read(partial(read, **arguments))

        app.get(path)(endpoint)
        return show

    return register


@route("/")
def show_campaigns(q: Text = "", account: Text = "", sort: Text = "sent_at", page: PageNumber = 1) -> HTMLResponse:
    """Show the campaigns.

    :param q: part of the name.
    :param account: the connection of an account; empty for all.
    :param page: the number of the page, from 1.
    """
    reader = Reader.of_page(PageSettings.from_airflow())
    result = campaigns.search(reader, text=q, account=account, sort=sort, page=page)
    return render.page("campaigns.html", found=result, reader=reader)


@route("/campaign")
def show_campaign(request: Request, account: Text, name: Text) -> HTMLResponse:
    """Show one campaign."""
    reader = Reader.of_page(PageSettings.from_airflow())
    campaign = campaigns.get(reader, account=account, name=name)
    if campaign is None:
        raise HTTPException(404, "There is no such campaign in the tables.")
    return render.page(
        "campaign.html",
        reader=reader,
        campaign=campaign,
        task=access.task_of(name, request.state.mail_user),
        platform=access.platform_url(account, campaign),
    )


@route("/lists")
def show_lists() -> HTMLResponse:
    """Show how lists grow."""
    reader = Reader.of_page(PageSettings.from_airflow())
    return render.page("lists.html", reader=reader, found=lists.get(reader) if reader.has("contacts") else None)


@route("/overlaps")
def show_overlaps() -> HTMLResponse:
    """Show how many contacts two lists have in common."""
    reader = Reader.of_page(PageSettings.from_airflow())
    return render.page("overlaps.html", reader=reader, found=lists.compare(reader) if reader.has("contacts") else None)


@route("/transactional")
def show_transactional(account: Text = "") -> HTMLResponse:
    """Show transactional mail by day.

    :param account: the connection of an account. Default: the first one.
    """
    reader = Reader.of_page(PageSettings.from_airflow())
    return render.page("transactional.html", reader=reader, found=views.transactional(reader, account))


@route("/loads")
def show_loads() -> HTMLResponse:
    """Show how fresh and how complete the tables are."""
    reader = Reader.of_page(PageSettings.from_airflow())
    return render.page("loads.html", reader=reader, found=views.loads(reader))


@route("/imports")
def show_imports(request: Request) -> HTMLResponse:
    """Show how many rows imports read, accepted and rejected, and why."""
    settings = PageSettings.from_airflow()
    reader, rejects = Reader.of_page(settings), Reader.of_rejects(settings)
    shown = imports.get(reader, rejects)
    tasks = access.tasks_of([item.import_id for item in shown], request.state.mail_user)
    shown_with_tasks = [(item, tasks.get(item.import_id, "")) for item in shown]
    return render.page("imports.html", reader=reader, rejects=rejects, found=shown_with_tasks)


@route("/events")
def show_events() -> HTMLResponse:
    """Show the pushed events by code, and how they differ from the statistics."""
    reader = Reader.of_page(PageSettings.from_airflow())
    differences = views.differences(reader)
    return render.page(
        "events.html", reader=reader, found=views.events(reader), differences=differences, inbox=views.inbox()
    )


@route("/waits")
def show_waits(request: Request) -> HTMLResponse:
    """Show which tasks wait for the service."""
    return render.page("waits.html", found=access.waits(request.state.mail_user))


@app.get("/static/{name}")
def show_file(name: str) -> Response:
    """Return a file of the page."""
    if name not in render.STATIC_FILES:
        raise HTTPException(404, "There is no such file.")
    content_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(
        (STATIC / name).read_bytes(), media_type=content_type, headers={"Cache-Control": "private, max-age=3600"}
    )


@app.exception_handler(StarletteHTTPException)
async def show_http_error(request: Request, error: Any) -> HTMLResponse:
    """Show why there is no page."""
    return render.error(error.status_code, str(error.detail), request)


@app.exception_handler(RequestValidationError)
async def show_bad_query(request: Request, error: RequestValidationError) -> HTMLResponse:
    """Show which part of the address is not possible.

    :param error: the error; its values are not shown.
    """
    names = sorted({str(problem["loc"][-1]) for problem in error.errors()})
    return render.error(400, f"This value in the address is not possible: {', '.join(names)}.", request)


@app.exception_handler(MailConfigError)
@app.exception_handler(NoAnswer)
@app.exception_handler(WarehouseError)
async def show_database_error(request: Request, error: Exception) -> HTMLResponse:
    """Show why the tables cannot be read; the message has no values of rows."""
    _log.warning("The page cannot read the tables: %s", error)
    advice = "Check that the database runs and that this API server reaches it, then reload this page."
    return render.error(503, str(error), request, advice="" if isinstance(error, MailConfigError) else advice)
