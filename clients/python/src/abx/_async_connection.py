"""The same as ``_connection``, on asyncio: many calls at once on one connection, and raw streams."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Mapping, Optional, Tuple, Type

from . import _launch, _wire
from ._connection import (
    GREET_LIMIT,
    GREET_PAUSE,
    check_protocol,
    greeting,
    is_leaving,
    lost,
    start_daemon,
)
from ._exchange import FOLLOW_LIMIT, FOLLOW_PAUSE, Chunk, Exchange
from .errors import AbxError, CallTimeoutError, ConnectionLostError, DaemonUnreachableError
from .models import Json, PtySize

_READ_BYTES = 256 * 1024

OnMessage = Callable[[Optional[Json]], Awaitable[None]]


async def connect(place: _launch.Place) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the daemon, which is started if none listens and that is wanted.

    Raises :class:`DaemonUnreachableError`.
    """
    path = place.path
    try:
        return await asyncio.open_unix_connection(path)
    except OSError as error:
        if not _launch.is_absent(error):
            raise _launch.cannot_connect(path, error) from error
    await asyncio.get_running_loop().run_in_executor(None, start_daemon, place)
    try:
        return await asyncio.open_unix_connection(path)
    except OSError as error:
        raise _launch.cannot_connect(path, error) from error


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
    async def open(cls, place: _launch.Place, client: str, on_message: OnMessage) -> "AsyncConnection":
        """Connects and greets."""
        deadline = time.monotonic() + GREET_LIMIT
        greeted = False

        async def pass_on(message: Optional[Json]) -> None:
            # A connection that was never given to anybody ends unheard.
            if greeted or message is not None:
                await on_message(message)

        while True:
            made = cls(*await connect(place), pass_on)
            try:
                check_protocol(await made.call("daemon.hello", greeting(client)))
                greeted = True
                return made
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
        except asyncio.TimeoutError:
            self._cancel(number)
            raise CallTimeoutError(
                f"{method} was not answered within {limit:g} s; what it began goes on",
                hint="abx ls shows how it stands",
            ) from None
        except asyncio.CancelledError:
            self._cancel(number)
            raise
        except AbxError:
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


class AsyncExecStream:
    """The bytes of one command: read output, write input, resize, signal, wait.

    Closing it before the end ends the command, unless it is detached or an attach. One task may read while
    another writes. A command that takes no input is followed through a restart of the daemon.
    """

    def __init__(self, place: _launch.Place, exchange: Exchange) -> None:
        self._place = place
        self._exchange = exchange
        self._closed = False
        self._reader: Optional[asyncio.StreamReader] = None
        self._writer: Optional[asyncio.StreamWriter] = None
        self._frames = _wire.FrameBuffer()

    @classmethod
    async def open(cls, place: _launch.Place, exchange: Exchange) -> "AsyncExecStream":
        """Opens it."""
        made = cls(place, exchange)
        try:
            await made._open()
        except ConnectionLostError as error:
            if not exchange.can_go_on(error):
                raise
            await made._follow()
        return made

    @property
    def id(self) -> str:
        """The command's id."""
        return self._exchange.exec_id

    @property
    def note(self) -> Optional[str]:
        """One line for the user on what was started."""
        return self._exchange.note

    @property
    def copy(self) -> Mapping[str, Any]:
        """What a copy has to know of its end in the sandbox."""
        return self._exchange.copy

    @property
    def exit_code(self) -> Optional[int]:
        """The code, once all output is read."""
        return self._exchange.exit[0] if self._exchange.exit else None

    @property
    def reason(self) -> Optional[str]:
        """Why it ended, where that was not by itself."""
        return self._exchange.exit[1] if self._exchange.exit else None

    @property
    def lost_bytes(self) -> int:
        """Bytes of output that were no longer kept when it was followed."""
        return self._exchange.lost_bytes

    async def read(self) -> Optional[Chunk]:
        """The next piece of output, ``("stdout", bytes)`` or ``("stderr", bytes)``; None at the end.

        May be cancelled, also by ``asyncio.wait_for``, and called again: nothing is lost.
        """
        while self._exchange.exit is None:
            try:
                chunk = await self._step()
            except AbxError as error:
                if self._closed or not self._exchange.can_go_on(error):
                    self.close()
                    raise
                await self._follow()
                continue
            if chunk is not None:
                return chunk
        self._drop()
        return None

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        while True:
            chunk = await self.read()
            if chunk is None:
                return
            yield chunk

    async def write(self, data: bytes) -> None:
        """Sends input; waits while the command does not take it."""
        for frame in self._exchange.input(data):
            await self._send(frame)

    async def end_input(self) -> None:
        """Ends the input."""
        await self._send(self._exchange.end_of_input())

    async def resize(self, rows: int, cols: int) -> None:
        """Tells the terminal's new size."""
        await self._send(self._exchange.resized(PtySize(rows, cols)))

    async def signal(self, number: int) -> None:
        """Signals the command."""
        await self._send(self._exchange.signal(number))

    async def wait(self) -> Tuple[int, Optional[str]]:
        """Reads to the end, passing over output, and gives the code and the reason."""
        async for _ in self:
            pass
        if self._exchange.exit is None:
            raise self._exchange.lost()
        return self._exchange.exit

    def close(self) -> None:
        """Closes the connection."""
        self._closed = True
        self._drop()

    async def __aenter__(self) -> "AsyncExecStream":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    async def _open(self) -> None:
        reader, writer = await connect(self._place)
        try:
            writer.write(self._exchange.hello())
            await writer.drain()
            lines = _wire.LineBuffer()
            while True:
                text = lines.next()
                if text is not None:
                    break
                data = await reader.read(_READ_BYTES)
                if not data:
                    raise ConnectionLostError("the daemon closed the connection", hint="abx daemon logs")
                lines.feed(data)
            self._exchange.answered(text)
        except AbxError:
            writer.close()
            raise
        except OSError as error:
            writer.close()
            raise self._exchange.lost() from error
        except BaseException:
            writer.close()
            raise
        self._frames = _wire.FrameBuffer()
        self._frames.feed(lines.rest())
        self._reader, self._writer = reader, writer

    async def _follow(self) -> None:
        self._drop()
        deadline = time.monotonic() + FOLLOW_LIMIT
        while True:
            try:
                return await self._open()
            except AbxError as error:
                passing = isinstance(error, DaemonUnreachableError) or error.kind == "shutting_down"
                if not passing or self._closed or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(FOLLOW_PAUSE)

    async def _step(self) -> Optional[Chunk]:
        frame = self._frames.next()
        if frame is not None:
            return self._exchange.take(*frame)
        if self._reader is None:
            raise self._exchange.lost()
        try:
            data = await self._reader.read(_READ_BYTES)
        except OSError as error:
            raise self._exchange.lost() from error
        if not data:
            raise self._exchange.lost()
        self._frames.feed(data)
        return None

    async def _send(self, frame: bytes) -> None:
        if self._writer is None:
            raise self._exchange.lost()
        try:
            self._writer.write(frame)
            await self._writer.drain()
        except OSError as error:
            raise self._exchange.lost() from error

    def _drop(self) -> None:
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            writer.close()
