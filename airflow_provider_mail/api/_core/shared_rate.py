"""One rate for the clients of all processes, kept in Redis."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from importlib import import_module
from typing import Any, NamedTuple

from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailConfigError, MailConnectError

log = logging.getLogger(__name__)

WINDOW = 1.04
"""Seconds in which ``requests_per_second`` requests may be sent. The four percent are for requests that travel faster
than those before them."""

LATE_SECONDS = 0.02
"""A request that is later for its slot than this would meet those of the next slots: it needs another one."""

MAX_AHEAD = 0.5
"""Seconds for which a slot is given in advance. So long may requests go on after another client was told to pause."""

AWAY_PAUSE = 1.0
"""Seconds between attempts to reach Redis."""

LOCAL_SECONDS = 30.0
"""Seconds for which a client that could not reach Redis keeps the rate by itself before it asks again."""

MAX_AWAY = 300.0
"""Seconds after which a client that waits for Redis gives up."""

WARN_SECONDS = 60.0
"""Seconds between warnings that Redis is away."""

SOCKET_SECONDS = 5.0
"""Seconds to wait for Redis."""

# The time is read inside of the script: a time that a client brings may be old when the script runs, and clocks differ.
# Redis would round the number, which has 16 digits.
SCRIPT = """
local next_slot, least, most, interval = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local longest = tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stored = redis.pcall('GET', next_slot)
stored = type(stored) == 'string' and tonumber(stored) or 0
if not (stored - now <= longest) then
    stored = 0
end
local slot = math.max(stored, now + least)
if slot - now > most then
    return {0, slot - now - most / 2}
end
local after = slot + interval
redis.call('SET', next_slot, string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000) + 1)
return {1, slot - now}
"""
"""Takes the next slot, if it is at least ``least`` and at most ``most`` microseconds ahead, and keeps ``interval``
microseconds behind it free. Returns whether it did, and the microseconds to wait for the slot or before asking again:
then the slots of half that time are free, so that not all who wait come for the same one. What is stored is no slot if
it is not a number, or further ahead than the ``longest`` pause: Redis' clock was set back."""


class Slot(NamedTuple):
    """A time to send one request.

    :param granted: whether there is one; if not, ask again.
    :param wait: seconds to wait, for the slot or before asking again.
    """

    granted: bool
    wait: float


class SharedRate:
    """The rate of one account, for one client.

    Slots are spaced evenly, as those of one client are.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._redis = redis_client(config)
        self._waits_for_redis = config.rate_limit_when_away == "wait"
        assert config.requests_per_second is not None
        self._interval = WINDOW / config.requests_per_second
        self._longest = config.retry.retry_after_cap_seconds + config.retry.cap_seconds + MAX_AHEAD + self._interval
        self._key = f"mail:rate:{_account(config)}"
        self._script = self._redis.register_script(SCRIPT)
        self._away_since: float | None = None
        self._ask_again_at = -math.inf
        self._warned_at = -math.inf

    def _take(self, *, least: float, most: float, interval: float) -> Any:
        """Run the script, with seconds; return what it returns."""
        times = (least, most, interval, max(self._longest, least))
        return self._script([self._key], [math.ceil(seconds * 1_000_000) for seconds in times])

    def _away(self, reason: str) -> Slot:
        """Return the time to wait for Redis, or a slot at once to continue with the client's own rate.

        :raises MailConnectError: it was away for too long.
        """
        now = time.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        consequence = "waiting for it" if self._waits_for_redis else "each process keeps requests_per_second by itself"
        if now - self._warned_at >= WARN_SECONDS:
            self._warned_at = now
            log.warning("rate_limit_conn_id: Redis cannot be used (%s): %s.", reason, consequence)
        if not self._waits_for_redis:
            # Each question to a Redis that is frozen takes SOCKET_SECONDS.
            self._ask_again_at = time.monotonic() + LOCAL_SECONDS
            return Slot(True, 0.0)
        if now - self._away_since >= MAX_AWAY:
            raise MailConnectError(
                f"rate_limit_conn_id: Redis could not be used for {MAX_AWAY:g} s ({reason}): nothing was sent. Fix "
                'the connection, or set rate_limit_when_away to "local"',
                reason=reason,
            )
        return Slot(False, AWAY_PAUSE)

    def reserve(self) -> Slot:
        """Reserve the next slot.

        :raises MailConnectError: Redis was away for too long, and the connection says to wait for it.
        """
        if time.monotonic() < self._ask_again_at:
            return Slot(True, 0.0)
        try:
            granted, microseconds = self._take(least=0.0, most=MAX_AHEAD, interval=self._interval)
        except _errors() as error:
            reason = type(error).__name__
        else:
            self._away_since = None
            return Slot(bool(granted), microseconds / 1_000_000)
        return self._away(reason)

    def pause_all(self, seconds: float) -> None:
        """Let the next slot be after a pause; a longer pause that was begun before stays."""
        try:
            self._take(least=seconds, most=seconds, interval=0.0)
        except _errors() as error:
            log.warning("rate_limit_conn_id: other processes are not paused (%s).", type(error).__name__)

    def close(self) -> None:
        self._redis.close()


def redis_client(config: ClientConfig) -> Any:
    """Return a client of Redis.

    :raises MailConfigError: a package is missing.
    """
    try:
        redis_type = import_module("redis").Redis
    except ImportError as error:
        raise MailConfigError(
            f"rate_limit_conn_id: needs the package {error.name}. On every worker, triggerer and API server: "
            "pip install 'airflow-provider-mail[redis]'"
        ) from None
    assert config.rate_limit_url is not None
    return redis_type.from_url(
        config.rate_limit_url.get_secret_value(), socket_timeout=SOCKET_SECONDS, socket_connect_timeout=SOCKET_SECONDS
    )


def _errors() -> tuple[type[Exception], ...]:
    return import_module("redis").RedisError, OSError


def _account(config: ClientConfig) -> str:
    """Return a digest of the account whose requests share the rate."""
    credential = config.rate_limit_account or next(iter(config.credentials().values()))
    return hashlib.sha256(f"{config.base_url} {credential}".encode()).hexdigest()[:16]
