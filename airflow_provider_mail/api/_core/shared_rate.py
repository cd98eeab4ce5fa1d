"""One rate for the clients of all processes, kept in Redis by pyrate-limiter."""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections.abc import Generator
from importlib import import_module
from inspect import isawaitable
from typing import Any, TypeVar

from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailConfigError, MailConnectError

log = logging.getLogger(__name__)

R = TypeVar("R")

WINDOW = 1.03
"""Seconds in which ``requests_per_second`` requests may be sent. The three percent are for requests that travel faster
than those before them."""

MIN_WAIT = 0.001
AWAY_PAUSE = 1.0
"""Seconds between attempts to reach Redis."""

MAX_AWAY = 300.0
"""Seconds after which a client that waits for Redis gives up."""

WARN_SECONDS = 60.0
"""Seconds between warnings that Redis is away."""

SOCKET_SECONDS = 5.0
"""Seconds to wait for Redis."""

Steps = Generator[Any, Any, R]
"""Yields what Redis returns: a value, or an awaitable of it, which the caller resolves."""


class _SharedRate:
    """The rate of one account, for one client.

    The time is that of Redis, so that the clocks of the machines do not matter.

    :param redis: a client of Redis, sync or async.
    """

    def __init__(self, config: ClientConfig, redis: Any) -> None:
        self._redis = redis
        self._waits_for_redis = config.rate_limit_when_away == "wait"
        assert config.requests_per_second is not None
        per_second = config.requests_per_second
        self._limit = max(1, math.floor(per_second))
        self._interval = math.ceil(1000 * WINDOW * max(1.0, 1.0 / per_second))
        self._key = f"mail:rate:{_account(config)}"
        self._bucket: Any = None
        self._leaked_at = 0
        self._away_since: float | None = None
        self._warned_at = -math.inf

    def _reserve(self) -> Steps[float]:
        """Reserve the next request; return the seconds to wait before the next attempt, 0 when it may be sent."""
        limiter = import_module("pyrate_limiter")
        if self._bucket is None:
            rates = [limiter.Rate(self._limit, self._interval)]
            self._bucket = yield limiter.RedisBucket.init(rates, self._redis, self._key)
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.time()
        pipeline.pttl(self._pause_key)
        (seconds, micros), paused = yield pipeline.execute()
        self._away_since = None
        if paused > 0:
            return float(paused / 1000)
        now = seconds * 1000 + micros // 1000
        item = limiter.RateItem("request", now)
        if (yield self._bucket.put(item)):
            if now - self._leaked_at > self._interval:
                self._leaked_at = now
                yield self._bucket.leak(now)
            return 0.0
        milliseconds = yield self._bucket.waiting(item)
        return max(MIN_WAIT, float(milliseconds / 1000))

    def _pause_all(self, seconds: float) -> Steps[None]:
        """Pause the clients of all processes; a longer pause that was begun before stays."""
        milliseconds = math.ceil(seconds * 1000)
        if milliseconds > (yield self._redis.pttl(self._pause_key)):
            yield self._redis.set(self._pause_key, "429", px=milliseconds)

    @property
    def _pause_key(self) -> str:
        return f"{self._key}:pause"

    def _away(self, reason: str) -> float:
        """Return the seconds to wait for Redis; 0 to continue with the client's own rate.

        :param reason: the name of the error.
        :raises MailConnectError: it was away for too long.
        """
        # Redis may have been restarted without the script.
        self._bucket = None
        now = time.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        consequence = "waiting for it" if self._waits_for_redis else "each process keeps requests_per_second by itself"
        if now - self._warned_at >= WARN_SECONDS:
            self._warned_at = now
            log.warning("rate_limit_conn_id: Redis cannot be used (%s): %s.", reason, consequence)
        if not self._waits_for_redis:
            return 0.0
        if now - self._away_since >= MAX_AWAY:
            raise MailConnectError(
                f"rate_limit_conn_id: Redis could not be used for {MAX_AWAY:g} s ({reason}): nothing was sent. Fix "
                'the connection, or set rate_limit_when_away to "local"',
                reason=reason,
            )
        return AWAY_PAUSE


class SharedRate(_SharedRate):
    """For threads."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config, _client(config, "redis").from_url(**_options(config)))
        self._lock = threading.Lock()

    def reserve(self) -> float:
        """Reserve the next request; return the seconds to wait before the next attempt, 0 when it may be sent.

        :raises MailConnectError: Redis was away for too long, and the connection says to wait for it.
        """
        try:
            with self._lock:
                return _run(self._reserve())
        except _errors() as error:
            reason = type(error).__name__
        return self._away(reason)

    def pause_all(self, seconds: float) -> None:
        """Pause the clients of all processes."""
        try:
            _run(self._pause_all(seconds))
        except _errors() as error:
            log.warning("rate_limit_conn_id: other processes are not paused (%s).", type(error).__name__)

    def close(self) -> None:
        """Close the connections to Redis."""
        self._redis.close()


class AsyncSharedRate(_SharedRate):
    """For one event loop."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config, _client(config, "redis.asyncio").from_url(**_options(config)))

    async def reserve(self) -> float:
        """Reserve the next request; return the seconds to wait before the next attempt, 0 when it may be sent.

        :raises MailConnectError: Redis was away for too long, and the connection says to wait for it.
        """
        try:
            return await _run_async(self._reserve())
        except _errors() as error:
            reason = type(error).__name__
        return self._away(reason)

    async def pause_all(self, seconds: float) -> None:
        """Pause the clients of all processes."""
        try:
            await _run_async(self._pause_all(seconds))
        except _errors() as error:
            log.warning("rate_limit_conn_id: other processes are not paused (%s).", type(error).__name__)

    async def close(self) -> None:
        """Close the connections to Redis."""
        await self._redis.aclose()


def _client(config: ClientConfig, module: str) -> Any:
    """Return the class of a Redis client.

    :raises MailConfigError: a package is missing.
    """
    try:
        import_module("pyrate_limiter")
        return import_module(module).Redis
    except ImportError as error:
        raise MailConfigError(
            f"rate_limit_conn_id: needs the package {error.name}. On every worker, triggerer and API server: "
            "pip install 'airflow-provider-mail[redis]'"
        ) from None


def _errors() -> tuple[type[Exception], ...]:
    """Return the errors of Redis and of the network."""
    return import_module("redis").RedisError, OSError


def _options(config: ClientConfig) -> dict[str, Any]:
    assert config.rate_limit_url is not None
    return {
        "url": config.rate_limit_url.get_secret_value(),
        "socket_timeout": SOCKET_SECONDS,
        "socket_connect_timeout": SOCKET_SECONDS,
    }


def _account(config: ClientConfig) -> str:
    """Return a digest of the account whose requests share the rate."""
    (credential,) = config.credentials().values()
    return hashlib.sha256(f"{config.base_url} {credential}".encode()).hexdigest()[:16]


def _run(steps: Steps[R]) -> R:
    value = None
    while True:
        try:
            value = steps.send(value)
        except StopIteration as end:
            result: R = end.value
            return result


async def _run_async(steps: Steps[R]) -> R:
    value = None
    while True:
        try:
            value = steps.send(value)
        except StopIteration as end:
            result: R = end.value
            return result
        if isawaitable(value):
            value = await value
