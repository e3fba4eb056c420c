"""Raw streams on asyncio."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from typing import AsyncIterator, Deque, Optional, Tuple

from . import _launch, _wire
from ._async_connection import Attempt, connect
from ._closing import AsyncClosing
from ._connection import unanswered
from ._exchange import FOLLOW_LIMIT, FOLLOW_PAUSE, Chunk, Exchange, Told
from .errors import AbxError, ConnectionLostError
from .models import PtySize

#: Bytes that are taken before they are wanted; past them the daemon waits, and with it the command.
_WAITING_BYTES = 1024 * 1024


class _Incoming(asyncio.Protocol):
    """What comes on a connection, up to its end and whatever that is.

    A stream of asyncio forgets what came before an error, and so would lose how a command ended whose input
    was not taken to its end.
    """

    def __init__(self) -> None:
        self._chunks: Deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._paused = False
        self._waiter: "Optional[asyncio.Future[None]]" = None
        self._transport: Optional[asyncio.ReadTransport] = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes what is read from."""
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Takes bytes."""
        self._chunks.append(data)
        self._size += len(data)
        if self._size > _WAITING_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """Takes the end."""
        self._ended = True
        self._wake()

    async def read(self) -> bytes:
        """The next bytes; none at the end. May be cancelled: nothing is lost."""
        while not self._chunks:
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = self._chunks.popleft()
        self._size -= len(data)
        if self._paused and self._size <= _WAITING_BYTES // 2 and self._transport is not None:
            self._paused = False
            if not self._ended:
                self._transport.resume_reading()
        return data

    def close(self) -> None:
        """Closes the connection."""
        if self._transport is not None:
            self._transport.close()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Outgoing:
    """What goes on the same connection, in order, whole, and apart from what comes."""

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self._last: "Optional[asyncio.Task[None]]" = None

    async def send(self, data: bytes) -> None:
        """Sends bytes. Who is cancelled has them sent all the same: half a frame would garble the rest."""
        sending = asyncio.get_running_loop().create_task(self._send(data, self._last))
        self._last = sending
        sending.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            if sending.cancelled():
                raise BrokenPipeError("the connection was closed") from None
            raise

    def close(self) -> None:
        """Closes the connection for both directions."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        if self._last is None or self._last.done():
            self._socket.close()
        else:
            # The loop still watches it, by a number that the next connection could get.
            self._last.cancel()
            self._last.add_done_callback(lambda task: self._socket.close())

    async def _send(self, data: bytes, before: "Optional[asyncio.Task[None]]") -> None:
        if before is not None:
            await before
        await asyncio.get_running_loop().sock_sendall(self._socket, data)


class AsyncExecStream(AsyncClosing, Told):
    """The bytes of one command: read output, write input, resize, signal, wait.

    Closing it before the end ends the command, unless it is detached or an attach. One task may read while
    another writes. A command that takes no input, or is on a terminal, is followed through a restart of the
    daemon, by whoever reads or writes first.
    """

    def __init__(self, place: _launch.Place, exchange: Exchange) -> None:
        self._place = place
        self._exchange = exchange
        # Held by who takes what comes, or connects anew: both change what the next frame is.
        self._receiving = asyncio.Lock()
        self._taken: Deque[Chunk] = deque()
        self._closed = False
        self._attempt = Attempt()
        self._incoming: Optional[_Incoming] = None
        self._outgoing: Optional[_Outgoing] = None
        self._frames = _wire.FrameBuffer()

    @classmethod
    async def open(
        cls, place: _launch.Place, exchange: Exchange, limit: Optional[float] = None
    ) -> "AsyncExecStream":
        """Opens it, which may take so many seconds."""
        made = cls(place, exchange)
        try:
            await made._attempt.make(made._open(), limit)
        except AbxError as error:
            if not exchange.may_open(error):
                raise
            await made._follow()
        except asyncio.TimeoutError:
            raise unanswered("the opening", limit) from None
        return made

    async def read(self) -> Optional[Chunk]:
        """The next piece of output, ``("stdout", bytes)`` or ``("stderr", bytes)``; None at the end.

        May be cancelled, also by ``asyncio.wait_for``, and called again: nothing is lost.
        """
        async with self._receiving:
            if self._taken:
                return self._taken.popleft()
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
        """Sends input; waits while the command does not take it.

        On a terminal, input that finds the daemon gone is sent once more, to the next one; what went just
        before may be lost. Raises :class:`ConnectionLostError` where the command is not followed, or ended.
        """
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
        self._attempt.end()
        self._drop()

    async def _open(self) -> None:
        hello = self._exchange.hello()
        made = await connect(self._place)
        incoming, outgoing = _Incoming(), _Outgoing(made.dup())
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: incoming, sock=made)
            await outgoing.send(hello)
            lines = _wire.LineBuffer()
            while True:
                text = lines.next()
                if text is not None:
                    break
                data = await incoming.read()
                if not data:
                    raise ConnectionLostError("the daemon closed the connection", hint="abx daemon logs")
                lines.feed(data)
            self._exchange.answered(text)
        except OSError as error:
            outgoing.close()
            incoming.close()
            raise error if isinstance(error, AbxError) else self._exchange.lost() from error
        except BaseException:
            outgoing.close()
            incoming.close()
            raise
        self._frames = _wire.FrameBuffer()
        self._frames.feed(lines.rest())
        self._incoming, self._outgoing = incoming, outgoing
        if self._closed:
            self._drop()
            raise self._exchange.lost()

    async def _follow(self) -> None:
        self._drop()
        patience = time.monotonic() + FOLLOW_LIMIT
        while not self._closed:
            failure: AbxError = self._exchange.lost()
            try:
                return await self._attempt.make(self._open(), max(0.0, patience - time.monotonic()))
            except AbxError as error:
                failure = error
                passing = self._exchange.is_passing(error)
            except asyncio.TimeoutError:
                passing = True
            if not passing or self._closed or time.monotonic() >= patience:
                self._exchange.check_gone(failure)
                raise failure
            await asyncio.sleep(FOLLOW_PAUSE)
        raise self._exchange.lost()

    async def _step(self) -> Optional[Chunk]:
        frame = self._frames.next()
        if frame is not None:
            return self._exchange.take(*frame)
        if self._incoming is None:
            raise self._exchange.lost()
        data = await self._incoming.read()
        if not data:
            raise self._exchange.lost()
        self._frames.feed(data)
        return None

    async def _send(self, frame: bytes) -> None:
        outgoing = self._outgoing
        try:
            return await self._put(outgoing, frame)
        except ConnectionLostError as error:
            await self._mend(outgoing, error)
        await self._put(self._outgoing, frame)

    async def _put(self, outgoing: Optional[_Outgoing], frame: bytes) -> None:
        if outgoing is None:
            raise self._exchange.lost()
        try:
            await outgoing.send(frame)
        except OSError as error:
            raise self._exchange.lost() from error

    async def _mend(self, broken: Optional[_Outgoing], error: ConnectionLostError) -> None:
        """Has another connection than ``broken``: that of who reads, or a new one where nobody does.

        Raises ``error`` where there is none to be had.
        """
        if self._exchange.fed:
            raise error
        while self._receiving.locked():
            if self._closed:
                raise error
            if self._outgoing not in (None, broken):
                return
            await asyncio.sleep(FOLLOW_PAUSE)
        async with self._receiving:
            if self._outgoing not in (None, broken):
                return
            await self._take_rest()
            if self._closed or self._exchange.exit is not None or not self._exchange.can_go_on(error):
                raise error
            await self._follow()

    async def _take_rest(self) -> None:
        """Keeps what came before the connection ended for who reads next."""
        while self._incoming is not None:
            # Who cannot be sent to has ended, so that this comes to its end, which may be a moment away.
            data = await self._incoming.read()
            if not data:
                break
            self._frames.feed(data)
        self._exchange.take_rest(self._frames, self._taken)

    def _drop(self) -> None:
        incoming, self._incoming = self._incoming, None
        outgoing, self._outgoing = self._outgoing, None
        if outgoing is not None:
            outgoing.close()
        if incoming is not None:
            incoming.close()
