"""Blocking sockets: connecting (and starting the daemon), calls one at a time, and raw streams."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Iterator, Mapping, Optional, Tuple

from . import _launch, _peer, _wire
from ._closing import Closing
from ._exchange import FOLLOW_LIMIT, FOLLOW_PAUSE, Chunk, Exchange
from ._version import __version__
from .errors import AbxError, CallTimeoutError, ConnectionLostError, DaemonUnreachableError, ProtocolError
from .models import Json, PtySize

_READ_BYTES = 256 * 1024

#: How long a daemon that is about to be gone is greeted again, and the time between two greetings, in
#: seconds.
GREET_LIMIT, GREET_PAUSE = 10.0, 0.05

#: How long a daemon may take to answer a greeting, for which it waits for nothing, in seconds.
ANSWER_LIMIT = 30.0


def connect(place: _launch.Place) -> socket.socket:
    """A connection to the daemon, which is started if none listens and that is wanted.

    Raises :class:`DaemonUnreachableError`, also where what listens there is another user's.
    """
    made = _reach(place)
    try:
        _peer.check(made, place.path)
    except BaseException:
        made.close()
        raise
    return made


def _reach(place: _launch.Place) -> socket.socket:
    path = place.path
    try:
        return _connect_once(path)
    except OSError as error:
        if not _launch.is_absent(error):
            raise _launch.cannot_connect(path, error) from error
    start_daemon(place)
    try:
        return _connect_once(path)
    except OSError as error:
        raise _launch.cannot_connect(path, error) from error


def _connect_once(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.connect(path)
    except BaseException:
        made.close()
        raise
    return made


def start_daemon(place: _launch.Place) -> None:
    """Has the daemon started.

    Raises :class:`DaemonUnreachableError` where it does not start, or that is not wanted.
    """
    command = place.command()
    # Not a pipe: the daemon lives on, and whoever waited for the pipe's end would wait for the daemon's.
    with tempfile.TemporaryFile() as said:
        try:
            code: Optional[int] = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                timeout=_launch.START_LIMIT,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        except OSError as error:
            raise _launch.failed(None, str(error).encode()) from error
        if code != 0:
            said.seek(0)
            raise _launch.failed(code, said.read())


class Connection:
    """A connection that carries one call at a time, and notifications beside it."""

    def __init__(self, place: _launch.Place, client: str, limit: Optional[float] = None) -> None:
        """Connects and greets, for which the daemon may take so many seconds."""
        self._number = 0
        self.pid = os.getpid()
        deadline = time.monotonic() + GREET_LIMIT
        while True:
            self._socket = connect(place)
            self._lines = _wire.LineBuffer()
            try:
                return check_protocol(self.call("daemon.hello", greeting(client), answer_limit(limit)))
            except AbxError as error:
                self.close()
                if not is_leaving(error) or time.monotonic() > deadline:
                    raise
            except BaseException:
                self.close()
                raise
            time.sleep(GREET_PAUSE)

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        limit: Optional[float] = None,
        on_event: Optional[Callable[[Json], None]] = None,
    ) -> Any:
        """Makes a call and waits for its answer, at most so many seconds.

        Raises what the daemon answers, :class:`ConnectionLostError` and :class:`CallTimeoutError`; after the
        last two the connection is of no more use.
        """
        self._number += 1
        deadline = None if limit is None else time.monotonic() + limit
        try:
            self._socket.settimeout(limit)
            self._socket.sendall(_wire.request(self._number, method, params))
            while True:
                answer = self.receive(deadline)
                if answer.get("id") == self._number:
                    return _wire.result(answer)
                if "method" in answer and on_event is not None:
                    on_event(answer)
                elif "method" not in answer and answer.get("id") is None:
                    return _wire.result(answer)
        except ConnectionLostError as error:
            raise lost(method) from error
        except AbxError:
            raise
        except socket.timeout:
            raise unanswered(method, limit) from None
        except OSError as error:
            raise lost(method) from error

    def receive(self, deadline: Optional[float] = None) -> Json:
        """The next message.

        Raises ``socket.timeout``, and :class:`ConnectionLostError` at the end.
        """
        while True:
            text = self._lines.next()
            if text is not None:
                return _wire.message(text)
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise socket.timeout("timed out")
                self._socket.settimeout(left)
            else:
                self._socket.settimeout(None)
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionLostError("the daemon closed the connection", hint="abx daemon status")
            self._lines.feed(data)

    def is_fresh(self) -> bool:
        """Whether nothing came on it since its last answer, not even its end."""
        if self.pid != os.getpid():
            return False
        try:
            self._socket.settimeout(0)
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            pass
        return False

    def shut(self) -> None:
        """Ends it under whoever waits on it, in another thread."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """Closes it."""
        self._socket.close()

    def __del__(self) -> None:
        # Connections that a client keeps go with it, without a warning for those who never close one.
        if hasattr(self, "_socket"):
            self._socket.close()


def greeting(client: str) -> Json:
    """What ``daemon.hello`` takes."""
    return {"client": client, "version": __version__, "protocol": _wire.PROTOCOL}


def answer_limit(limit: Optional[float]) -> float:
    """How long a greeting may take where a call may take so long."""
    return ANSWER_LIMIT if limit is None else min(limit, ANSWER_LIMIT)


def unanswered(method: str, limit: Optional[float]) -> CallTimeoutError:
    """A call that was not answered in time."""
    if method == "daemon.hello":
        return CallTimeoutError(
            f"the daemon did not answer within {limit:g} s; nothing was asked of it yet",
            hint="abx daemon restart",
        )
    return CallTimeoutError(
        f"{method} was not answered within {limit:g} s; what it began goes on",
        hint="abx ls shows how it stands",
    )


def is_leaving(error: AbxError) -> bool:
    """Whether a greeting failed so because that daemon is about to be gone: the next one may answer."""
    return isinstance(error, ConnectionLostError) or error.kind == "shutting_down"


def check_protocol(hello: Any) -> None:
    """Raises :class:`ProtocolError` where the daemon speaks another version."""
    spoken = hello.get("protocol") if isinstance(hello, dict) else None
    if spoken != _wire.PROTOCOL:
        raise ProtocolError(
            f"the daemon speaks protocol {spoken}, this client {_wire.PROTOCOL}",
            hint="bring both to one version, then: abx daemon restart",
        )


def lost(method: str = "what was asked") -> ConnectionLostError:
    """A call whose answer will not come."""
    return ConnectionLostError(
        f"the daemon went away before it answered {method}: that may have been done, or may still go on",
        hint="look with session.get or abx ls, then ask again",
    )


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
            # To connect to a terminal whose program has ended would begin another one.
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
