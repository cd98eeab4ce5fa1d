"""What must not be told, and the connections that fail, for `test_leaks` and its DAG; the DAG's own text names none."""

from __future__ import annotations

from typing import Any

PLANTED = {
    "address": "planted-person@example.com", "gone": "planted-gone@example.com", "name": "Plantagenet",
    "callback": "https://hooks.example.com/planted-callback", "phone": "+491717777777",
    "client_secret": "planted-client-secret", "code": "planted-code",
}  # fmt: skip
SECRETS = {name: f"planted-{name}" for name in ("key", "token", "sql-password", "client_secret", "proxy-password")}
SECRETS["client_secret"] = PLANTED["client_secret"]

HTML, JSON = "text/html", "application/json"
PAGE = (HTML, "<html>{quote}</html>")
ANSWERS: dict[str, tuple[int, str, str]] = {
    "code_401": (401, JSON, '{"code": 401, "message": "{quote}"}'),
    "code_400": (200, JSON, '{"code": 400, "message": "{quote}"}'),
    "code_500": (200, JSON, '{"code": 500, "message": "{quote}"}'),
    "cut": (200, JSON, '{"code": 200, "message": "{quote}"'),
    "wrong_types": (200, JSON, '{"code": {"{quote}": 1}, "message": ["{quote}"]}'),
    "too_often": (429, JSON, '{"code": 429, "message": "{quote}"}'),
    **{"page": (200, *PAGE), "page_403": (403, *PAGE), "page_500": (500, *PAGE), "redirect": (307, *PAGE)},
}
NEVER = "http://127.0.0.1:9"
ELSEWHERE: dict[str, dict[str, Any]] = {
    "refused": {"host": NEVER},
    "url_password": {"host": f"http://user:{SECRETS['proxy-password']}@127.0.0.1:9"},
    "proxy_password": {"host": NEVER, "extra": {"proxy": f"http://user:{SECRETS['proxy-password']}@127.0.0.1:9"}},
    "odd_extra": {"host": NEVER, "extra": {"odd": SECRETS["token"], "client_secret": SECRETS["client_secret"]}},
    "odd_key": {"host": NEVER, "password": f"{SECRETS['key']}\n{SECRETS['key']}"},
}
SHAPES = [*ANSWERS, "hang_up", "silent", "no_tls"]
