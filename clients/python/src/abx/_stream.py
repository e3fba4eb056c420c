"""Raw streams on blocking sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from typing import Deque, Iterator, Optional, Tuple

from . import _launch, _wire
from ._closing import Closing
from ._connection import connect, unanswered
from ._exchange import FOLLOW_LIMIT, FOLLOW_PAUSE, Chunk, Exchange, Told
from ._link import Link
from .errors import AbxError, ConnectionLostError
from .models import PtySize

#: Least time that a connection may take to be made, in seconds: it is there at once, or does not come.
_CONNECT_LEAST = 0.1


class _Half:
    """A connection on which the opening is sent and not answered yet."""

    def __init__(self, made: socket.socket) -> None:
        self.link = Link(made)
        self.lines = _wire.LineBuffer()


class ExecStream(Closing, Told):
    """The bytes of one command: read output, write input, resize, signal, wait.

    Closing it before the end ends the command, unless it is detached or an attach. One thread may read while
    another writes. A command that takes no input, or is on a terminal, is followed through a restart of the
    daemon, by whoever reads or writes first.
    """

    def __init__(self, place: _launch.Place, exchange: Exchange, limit: Optional[float] = None) -> None:
        """Opens it, which may take so many seconds."""
        self._place = place
        self._exchange = exchange
        self._sending = threading.Lock()
        # Held by who takes what comes, or connects anew: both change what the next frame is.
        self._receiving = threading.Lock()
        self._taken: Deque[Chunk] = deque()
        self._closed = threading.Event()
        self._socket: Optional[Link] = None
        self._half: Optional[_Half] = None
        # Until when a lost command is looked for.
        self._patience: Optional[float] = None
        try:
            self._open(None if limit is None else time.monotonic() + limit)
        except AbxError as error:
            if not exchange.may_open(error):
                raise
            self._follow()
        except TimeoutError:
            self.close()
            raise unanswered("the opening", limit) from None

    def read(self, timeout: Optional[float] = None) -> Optional[Chunk]:
        """The next piece of output, ``("stdout", bytes)`` or ``("stderr", bytes)``; None at the end.

        Raises TimeoutError where none comes in time, and what ends the stream otherwise.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._receiving.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise TimeoutError("another thread reads")
        try:
            return self._read(deadline)
        finally:
            self._receiving.release()

    def __iter__(self) -> Iterator[Chunk]:
        while True:
            chunk = self.read()
            if chunk is None:
                return
            yield chunk

    def write(self, data: bytes) -> None:
        """Sends input; waits while the command does not take it.

        On a terminal, input that finds the daemon gone is sent once more, to the next one; what went just
        before may be lost. Raises :class:`ConnectionLostError` where the command is not followed, or ended.
        """
        for frame in self._exchange.input(data):
            self._send(frame)

    def end_input(self) -> None:
        """Ends the input."""
        self._send(self._exchange.end_of_input())

    def resize(self, rows: int, cols: int) -> None:
        """Tells the terminal's new size."""
        self._send(self._exchange.resized(PtySize(rows, cols)))

    def signal(self, number: int) -> None:
        """Signals the command."""
        self._send(self._exchange.signal(number))

    def wait(self) -> Tuple[int, Optional[str]]:
        """Reads to the end, passing over output, and gives the code and the reason."""
        for _ in self:
            pass
        if self._exchange.exit is None:
            raise self._exchange.lost()
        return self._exchange.exit

    def close(self) -> None:
        """Closes the connection."""
        # In this order: who makes another one meanwhile finds either this, or has it ended here.
        self._closed.set()
        self._drop()

    def _read(self, deadline: Optional[float]) -> Optional[Chunk]:
        if self._taken:
            return self._taken.popleft()
        while self._exchange.exit is None:
            try:
                chunk = self._step(deadline)
            except AbxError as error:
                if self._closed.is_set() or not self._exchange.can_go_on(error):
                    self.close()
                    raise
                self._follow(deadline)
                continue
            if chunk is not None:
                return chunk
        self._drop()
        return None

    def _open(self, deadline: Optional[float] = None) -> None:
        """Has another connection. What is under way when the time is up goes on when this is called again.

        Raises TimeoutError, and what the daemon refuses it with.
        """
        half = self._half or self._begin(deadline)
        try:
            while True:
                text = half.lines.next()
                if text is not None:
                    break
                data = half.link.receive(deadline)
                if not data:
                    raise ConnectionLostError("the daemon closed the connection", hint="abx daemon logs")
                half.lines.feed(data)
            self._exchange.answered(text)
        except AbxError:
            self._drop()
            raise
        except TimeoutError:
            raise
        except OSError as error:
            self._drop()
            raise self._exchange.lost() from error
        except BaseException:
            self._drop()
            raise
        self._frames = _wire.FrameBuffer()
        self._frames.feed(half.lines.rest())
        self._socket, self._half = half.link, None
        self._check_open()

    def _begin(self, deadline: Optional[float]) -> _Half:
        hello = self._exchange.hello()
        left = None if deadline is None else max(_CONNECT_LEAST, deadline - time.monotonic())
        made = connect(self._place, left, left)
        try:
            made.settimeout(left)
            made.sendall(hello)
            made.settimeout(None)
        except OSError as error:
            made.close()
            raise self._exchange.lost() from error
        except BaseException:
            made.close()
            raise
        self._half = _Half(made)
        self._check_open()
        return self._half

    def _check_open(self) -> None:
        if self._closed.is_set():
            self._drop()
            raise self._exchange.lost()

    def _follow(self, deadline: Optional[float] = None) -> None:
        """Has the command on another connection.

        Raises TimeoutError where there is none in time, after which it may be called again.
        """
        if self._patience is None:
            self._drop()
            self._patience = time.monotonic() + FOLLOW_LIMIT
        patience = self._patience
        while True:
            failure: AbxError = self._exchange.lost()
            try:
                self._open(patience if deadline is None else min(patience, deadline))
                self._patience = None
                return
            except AbxError as error:
                failure = error
                passing = self._exchange.is_passing(error)
            except TimeoutError:
                passing = True
            if not passing or self._closed.is_set() or time.monotonic() > patience:
                self._drop()
                self._patience = None
                self._exchange.check_gone(failure)
                raise failure
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError("no output came in time")
            self._closed.wait(FOLLOW_PAUSE)

    def _step(self, deadline: Optional[float]) -> Optional[Chunk]:
        frame = self._frames.next()
        if frame is not None:
            return self._exchange.take(*frame)
        if self._socket is None:
            raise self._exchange.lost()
        try:
            data = self._socket.receive(deadline)
        except TimeoutError:
            raise TimeoutError("no output came in time") from None
        except (OSError, ValueError) as error:
            raise self._exchange.lost() from error
        if not data:
            raise self._exchange.lost()
        self._frames.feed(data)
        return None

    def _send(self, frame: bytes) -> None:
        with self._sending:
            made = self._socket
            try:
                return self._put(made, frame)
            except ConnectionLostError as error:
                self._mend(made, error)
            self._put(self._socket, frame)

    def _put(self, link: Optional[Link], frame: bytes) -> None:
        if link is None:
            raise self._exchange.lost()
        try:
            with link.held() as made:
                made.sendall(frame)
        except OSError as error:
            raise self._exchange.lost() from error

    def _mend(self, broken: Optional[Link], error: ConnectionLostError) -> None:
        """Has another connection than ``broken``: that of who reads, or a new one where nobody does.

        Raises ``error`` where there is none to be had.
        """
        if self._exchange.fed:
            raise error
        while not self._receiving.acquire(timeout=FOLLOW_PAUSE):
            if self._closed.is_set():
                raise error
            if self._socket not in (None, broken):
                return
        try:
            if self._socket not in (None, broken):
                return
            self._take_rest()
            if (
                self._closed.is_set()
                or self._exchange.exit is not None
                or not self._exchange.can_go_on(error)
            ):
                raise error
            self._follow()
        finally:
            self._receiving.release()

    def _take_rest(self) -> None:
        """Keeps what came before the connection ended for who reads next."""
        while self._socket is not None:
            try:
                data = self._socket.receive(time.monotonic())
            except OSError:
                break
            if not data:
                break
            self._frames.feed(data)
        self._exchange.take_rest(self._frames, self._taken)

    def _drop(self) -> None:
        link, half = self._socket, self._half
        self._socket, self._half = None, None
        if link is not None:
            link.end()
        if half is not None:
            half.link.end()
