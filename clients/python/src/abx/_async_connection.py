"""Connecting and calls on asyncio: many calls at once on one connection."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any, Awaitable, Callable, Coroutine, Dict, Mapping, Optional, TypeVar

from . import _launch, _peer, _wire
from ._connection import (
    GREET_PAUSE,
    check_protocol,
    greet_limit,
    greeting,
    is_leaving,
    lost,
    start_daemon,
    unanswered,
)
from .errors import AbxError, CallTimeoutError
from .models import Json

_READ_BYTES = 256 * 1024

T = TypeVar("T")

OnMessage = Callable[[Optional[Json]], Awaitable[None]]


async def connect(place: _launch.Place, limit: Optional[float] = None) -> socket.socket:
    """A connection to the daemon, which is started if none listens and that is wanted. Connecting takes at
    most ``limit`` seconds.

    Raises :class:`DaemonUnreachableError`, also where what listens there is another user's.
    """
    made = await _reach(place, limit)
    try:
        _peer.check(made, place.path)
    except BaseException:
        made.close()
        raise
    return made


async def _reach(place: _launch.Place, limit: Optional[float]) -> socket.socket:
    path = place.path
    try:
        return await _connect_once(path, limit)
    except OSError as error:
        if not _launch.is_absent(error):
            raise _launch.cannot_connect(path, error) from error
    await asyncio.get_running_loop().run_in_executor(None, start_daemon, place)
    try:
        return await _connect_once(path, limit)
    except OSError as error:
        raise _launch.cannot_connect(path, error) from error


async def _connect_once(path: str, limit: Optional[float]) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(made, path), limit)
    except asyncio.TimeoutError:
        made.close()
        raise OSError("timed out") from None
    except BaseException:
        made.close()
        raise
    return made


class Attempt:
    """Work that has a limit of time, and that another task may end."""

    def __init__(self) -> None:
        self._task: "Optional[asyncio.Task[Any]]" = None

    async def make(self, work: Coroutine[Any, Any, T], limit: Optional[float] = None) -> T:
        """Does it.

        Raises ``asyncio.TimeoutError`` where it takes more seconds, and :class:`ConnectionLostError` where it
        is ended.
        """
        task: "asyncio.Task[T]" = asyncio.get_running_loop().create_task(work)
        self._task = task
        try:
            await asyncio.wait({task}, timeout=limit)
            if not task.done():
                raise asyncio.TimeoutError
            if task.cancelled():
                raise lost()
            return task.result()
        finally:
            self._task = None
            task.cancel()

    def end(self) -> None:
        """Ends it, if it is under way."""
        if self._task is not None:
            self._task.cancel()


class AsyncConnection:
    """A connection that carries many calls at once.

    ``on_message`` gets each notification, and None at the end; while it waits, nothing more is read.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_message: OnMessage
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_message = on_message
        self._number = 0
        self._pending: Dict[int, "asyncio.Future[Json]"] = {}
        self.loop = asyncio.get_running_loop()
        self.ended = False
        self._task = self.loop.create_task(self._receive())

    @classmethod
    async def open(
        cls, place: _launch.Place, client: str, on_message: OnMessage, limit: Optional[float] = None
    ) -> "AsyncConnection":
        """Connects and greets, for which the daemon may take so many seconds."""
        allowed = greet_limit(limit)
        deadline: Optional[float] = None
        greeted = False

        async def pass_on(message: Optional[Json]) -> None:
            # A connection that was never given to anybody ends unheard.
            if greeted or message is not None:
                await on_message(message)

        while True:
            made = cls(*await asyncio.open_unix_connection(sock=await connect(place, allowed)), pass_on)
            # To start a daemon takes time of its own.
            deadline = deadline or time.monotonic() + allowed
            try:
                left = max(deadline - time.monotonic(), GREET_PAUSE)
                check_protocol(await made.call("daemon.hello", greeting(client), left))
                greeted = True
                return made
            except CallTimeoutError:
                made.close()
                raise unanswered("daemon.hello", allowed) from None
            except AbxError as error:
                made.close()
                if not is_leaving(error) or time.monotonic() > deadline:
                    raise
            except BaseException:
                made.close()
                raise
            await asyncio.sleep(GREET_PAUSE)

    async def call(self, method: str, params: Mapping[str, Any], limit: Optional[float] = None) -> Any:
        """Makes a call and waits for its answer, at most so many seconds.

        Who is cancelled while it waits has the request cancelled; what that began goes on.
        """
        self._number += 1
        number = self._number
        answer: "asyncio.Future[Json]" = self.loop.create_future()
        if self.ended:
            raise lost(method)
        self._pending[number] = answer
        try:
            self._writer.write(_wire.request(number, method, params))
            await self._writer.drain()
            return _wire.result(await asyncio.wait_for(answer, limit))
        except AbxError:
            raise
        except asyncio.TimeoutError:
            self._cancel(number)
            raise unanswered(method, limit) from None
        except asyncio.CancelledError:
            self._cancel(number)
            raise
        except OSError as error:
            raise lost(method) from error
        finally:
            self._pending.pop(number, None)

    def close(self) -> None:
        """Closes it."""
        self.ended = True
        if not self.loop.is_closed():
            self._task.cancel()
            self._writer.close()

    def _cancel(self, number: int) -> None:
        if not self.ended and not self.loop.is_closed():
            self._writer.write(_wire.notification("$/cancelRequest", {"id": number}))

    async def _receive(self) -> None:
        lines = _wire.LineBuffer()
        failure: AbxError = lost()
        try:
            while True:
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    break
                lines.feed(data)
                while True:
                    text = lines.next()
                    if text is None:
                        break
                    await self._take(_wire.message(text))
        except OSError:
            pass
        except AbxError as error:
            failure = error
        finally:
            self.ended = True
            for answer in self._pending.values():
                if not answer.done():
                    answer.set_exception(failure)
            self._writer.close()
        await self._on_message(None)

    async def _take(self, message: Json) -> None:
        if "method" in message:
            await self._on_message(message)
            return
        number = message.get("id")
        answer = self._pending.get(number) if isinstance(number, int) else None
        if answer is not None and not answer.done():
            answer.set_result(message)
        elif number is None:
            # Not about one request but about the connection, which ends.
            _wire.result(message)
