"""Raw streams on blocking sockets."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from typing import Any, Deque, Iterator, Mapping, Optional, Tuple

from . import _launch, _wire
from ._closing import Closing
from ._connection import connect
from ._exchange import FOLLOW_LIMIT, FOLLOW_PAUSE, Chunk, Exchange
from .errors import AbxError, ConnectionLostError, DaemonUnreachableError
from .models import PtySize

_READ_BYTES = 256 * 1024


class ExecStream(Closing):
    """The bytes of one command: read output, write input, resize, signal, wait.

    Closing it before the end ends the command, unless it is detached or an attach. One thread may read while
    another writes. A command that takes no input, or is on a terminal, is followed through a restart of the
    daemon, by whoever reads or writes first.
    """

    def __init__(self, place: _launch.Place, exchange: Exchange) -> None:
        self._place = place
        self._exchange = exchange
        self._sending = threading.Lock()
        # Held by who takes what comes, or connects anew: both change what the next frame is.
        self._receiving = threading.Lock()
        self._taken: Deque[Chunk] = deque()
        self._closed = False
        self._socket: Optional[socket.socket] = None
        try:
            self._open()
        except ConnectionLostError as error:
            if not exchange.can_go_on(error):
                raise
            self._follow()

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

    def read(self, timeout: Optional[float] = None) -> Optional[Chunk]:
        """The next piece of output, ``("stdout", bytes)`` or ``("stderr", bytes)``; None at the end.

        Raises TimeoutError where none comes in time, and what ends the stream otherwise.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._receiving:
            if self._taken:
                return self._taken.popleft()
            while self._exchange.exit is None:
                try:
                    chunk = self._step(deadline)
                except AbxError as error:
                    if self._closed or not self._exchange.can_go_on(error):
                        self.close()
                        raise
                    self._follow()
                    continue
                if chunk is not None:
                    return chunk
            self._drop()
        return None

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
        self._closed = True
        self._drop()

    def _open(self) -> None:
        made = connect(self._place)
        try:
            made.sendall(self._exchange.hello())
            lines = _wire.LineBuffer()
            while True:
                text = lines.next()
                if text is not None:
                    break
                data = made.recv(_READ_BYTES)
                if not data:
                    raise ConnectionLostError("the daemon closed the connection", hint="abx daemon logs")
                lines.feed(data)
            self._exchange.answered(text)
        except AbxError:
            made.close()
            raise
        except OSError as error:
            made.close()
            raise self._exchange.lost() from error
        except BaseException:
            made.close()
            raise
        self._frames = _wire.FrameBuffer()
        self._frames.feed(lines.rest())
        self._socket = made

    def _follow(self) -> None:
        self._drop()
        deadline = time.monotonic() + FOLLOW_LIMIT
        while True:
            try:
                return self._open()
            except AbxError as error:
                passing = isinstance(error, DaemonUnreachableError) or error.kind == "shutting_down"
                if not passing or self._closed or time.monotonic() > deadline:
                    self._exchange.check_gone(error)
                    raise
            time.sleep(FOLLOW_PAUSE)

    def _step(self, deadline: Optional[float]) -> Optional[Chunk]:
        frame = self._frames.next()
        if frame is not None:
            return self._exchange.take(*frame)
        if self._socket is None:
            raise self._exchange.lost()
        try:
            if deadline is not None:
                left = max(0.0, deadline - time.monotonic())
                poll = select.poll()
                poll.register(self._socket, select.POLLIN)
                if not poll.poll(left * 1000):
                    raise TimeoutError("no output came in time")
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            raise
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

    def _put(self, made: Optional[socket.socket], frame: bytes) -> None:
        if made is None:
            raise self._exchange.lost()
        try:
            made.sendall(frame)
        except OSError as error:
            raise self._exchange.lost() from error

    def _mend(self, broken: Optional[socket.socket], error: ConnectionLostError) -> None:
        """Has another connection than ``broken``: that of who reads, or a new one where nobody does.

        Raises ``error`` where there is none to be had.
        """
        if self._exchange.fed:
            raise error
        while not self._receiving.acquire(timeout=FOLLOW_PAUSE):
            if self._closed:
                raise error
            if self._socket not in (None, broken):
                return
        try:
            if self._socket not in (None, broken):
                return
            self._take_rest()
            if self._closed or self._exchange.exit is not None or not self._exchange.can_go_on(error):
                raise error
            self._follow()
        finally:
            self._receiving.release()

    def _take_rest(self) -> None:
        """Keeps what came before the connection ended for who reads next."""
        while self._socket is not None:
            try:
                data = self._socket.recv(_READ_BYTES, socket.MSG_DONTWAIT)
            except OSError:
                break
            if not data:
                break
            self._frames.feed(data)
        self._exchange.take_rest(self._frames, self._taken)

    def _drop(self) -> None:
        made, self._socket = self._socket, None
        if made is not None:
            try:
                made.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            made.close()
