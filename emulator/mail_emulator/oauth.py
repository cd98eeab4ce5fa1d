"""OAuth 2.0, authorization-code flow: the consent page, codes, tokens."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from html import escape
from urllib.parse import urlencode

from mail_emulator.operations import Context
from mail_emulator.responses import Response, ServiceError, html
from mail_emulator.store import Row

CODE_MS = 5 * 60 * 1000
RENEWAL_MS = 300 * 1000
AUTHORIZE = "/v5/auth/oauth/authorize"
TOKEN = "/v5/auth/oauth/token"


def authorize(context: Context, query: Mapping[str, str]) -> Response:
    """Return the consent page, a form; HTTP 400 for an invalid request."""
    if problem := _authorization_problem(context, query):
        return html("Authorization is not possible", f"<p>{escape(problem)}</p>", 400)
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in query.items()
    )
    return html(
        "Allow access?",
        f"<p>The application <b>{escape(query['client_id'])}</b> asks for access to everything in the account of team "
        f"<b>{escape(context.settings.team_name)}</b>.</p>"
        f'<form method="post" action="{AUTHORIZE}">{hidden}'
        '<button type="submit" name="decision" value="approve">Approve</button> '
        '<button type="submit" name="decision" value="deny">Deny</button></form>',
    )


def decide(context: Context, form: Mapping[str, str]) -> Response:
    """Redirect to the application after the user's decision."""
    if problem := _authorization_problem(context, form):
        return html("Authorization is not possible", f"<p>{escape(problem)}</p>", 400)
    back: dict[str, str] = {}
    if form.get("decision") == "approve":
        back["code"] = secrets.token_urlsafe(24)
        context.store.insert("codes", code=back["code"], issued=context.now)
    elif context.settings.oauth_denial == "page":
        return html("Access was denied", "<p>You may close this window.</p>")
    elif context.settings.oauth_denial == "redirect_error":
        back["error"] = "access_denied"
    if context.settings.oauth_echo_state and "state" in form:
        back["state"] = form["state"]
    target = form["redirect_uri"]
    if back:
        target += ("&" if "?" in target else "?") + urlencode(back)
    return Response(status=302, text="", headers=[("Location", target)])


def _problem(query: Mapping[str, str], expected: Mapping[str, str | None]) -> str | None:
    """Return the first problem of the parameters; the value of one that is expected to be None is not compared."""
    for name, value in expected.items():
        if not query.get(name):
            return f"missing parameter: {name}"
        if value is not None and not secrets.compare_digest(query[name].encode(), value.encode()):
            return f"invalid parameter: {name}"
    return None


def _authorization_problem(context: Context, query: Mapping[str, str]) -> str | None:
    settings = context.settings
    application = {"client_id": settings.oauth_client_id, "response_type": "code"}
    return _problem(query, {**application, "redirect_uri": settings.oauth_redirect_uri, "scope": "All"})


def token(context: Context, query: Mapping[str, str]) -> dict[str, object]:
    """Exchange a code for a token. A successful exchange uses the code up; a rejected one does not."""
    settings = context.settings
    application = {"client_id": settings.oauth_client_id, "client_secret": settings.oauth_client_secret}
    if problem := _problem(query, {"grant_type": "authorization_code", **application, "code": None}):
        raise ServiceError(settings.oauth_error_code, problem)
    code = context.store.row("SELECT * FROM codes WHERE code = ?", [query["code"]])
    if code is None or code["used"] or context.now - code["issued"] > CODE_MS:
        raise ServiceError(settings.oauth_error_code, "invalid parameter: code is unknown, used or expired")
    context.store.run("UPDATE codes SET used = 1 WHERE code = ?", [query["code"]])
    current = _current(context)
    if current is None or not _outlives(current, context.now + RENEWAL_MS):
        current = issue(context)
    elif settings.oauth_repeated_flow == "replace":
        context.store.run("UPDATE tokens SET revoked = 1")
        current = issue(context)
    expires_in = -1 if current["expires"] is None else (current["expires"] - context.now) // 1000
    return {"accessToken": current["token"], "expiresIn": expires_in}


def _current(context: Context) -> Row | None:
    """Return the newest token that is not revoked."""
    return context.store.row("SELECT * FROM tokens WHERE revoked = 0 ORDER BY rowid DESC LIMIT 1")


def issue(context: Context) -> Row:
    """Issue a token."""
    seconds = context.settings.oauth_token_seconds
    issued = {
        "token": secrets.token_urlsafe(48),
        "issued": context.now,
        "expires": None if seconds is None else context.now + seconds * 1000,
    }
    context.store.insert("tokens", **issued)
    return issued


def _outlives(row: Row, moment: int) -> bool:
    return row["expires"] is None or row["expires"] >= moment


def is_valid(context: Context, access_token: str) -> bool:
    """Return whether an access token is valid."""
    row = context.store.row("SELECT * FROM tokens WHERE token = ? AND revoked = 0", [access_token])
    return row is not None and _outlives(row, context.now + 1)
