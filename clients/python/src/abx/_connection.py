"""Blocking sockets: connecting (and starting the daemon), and calls one at a time."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
import time
from typing import Any, Callable, List, Mapping, Optional

from . import _launch, _peer, _wire
from ._link import Link
from ._version import __version__
from .errors import (
    AbxError,
    CallTimeoutError,
    ConnectionLostError,
    ProtocolError,
    ShuttingDownError,
)
from .models import Json

#: How long a daemon may take to answer a greeting, for which it waits for nothing, in seconds. One that is
#: about to be gone is greeted again meanwhile.
GREET_LIMIT = 10.0

#: Time between two greetings, in seconds.
GREET_PAUSE = 0.05


def connect(
    place: _launch.Place, limit: Optional[float] = None, start_limit: Optional[float] = None
) -> socket.socket:
    """A connection to the daemon, which is started if none listens and that is wanted. Connecting takes at
    most ``limit`` seconds, and to have it started ``start_limit``.

    Raises :class:`DaemonUnreachableError`, also where what listens there is another user's, and TimeoutError
    where the start takes longer.
    """
    made = _reach(place, limit, start_limit)
    try:
        _peer.check(made, place.path)
    except BaseException:
        made.close()
        raise
    return made


def _reach(place: _launch.Place, limit: Optional[float], start_limit: Optional[float]) -> socket.socket:
    path = place.path
    try:
        return _connect_once(path, limit)
    except OSError as error:
        if not _launch.is_absent(error):
            raise _launch.cannot_connect(path, error) from error
    if start_limit is None:
        start_daemon(place)
    else:
        _start_within(place, start_limit)
    try:
        return _connect_once(path, limit)
    except OSError as error:
        raise _launch.cannot_connect(path, error) from error


def _connect_once(path: str, limit: Optional[float]) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(limit)
        made.connect(path)
        made.settimeout(None)
    except BaseException:
        made.close()
        raise
    return made


def _start_within(place: _launch.Place, limit: float) -> None:
    """Has the daemon started, and waits so long for it; the start goes on all the same.

    Raises TimeoutError, and as :func:`start_daemon` does.
    """
    failures: List[BaseException] = []

    def start() -> None:
        try:
            start_daemon(place)
        except BaseException as error:
            failures.append(error)

    starting = threading.Thread(target=start, name="abx daemon start", daemon=True)
    starting.start()
    starting.join(limit)
    if starting.is_alive():
        raise TimeoutError("the daemon is being started")
    for failure in failures:
        raise failure


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

    def __init__(
        self,
        place: _launch.Place,
        client: str,
        limit: Optional[float] = None,
        made: Optional[Callable[["Connection"], None]] = None,
    ) -> None:
        """Connects and greets, for which the daemon may take so many seconds. ``made`` is given this before
        each greeting, so that another thread may close it meanwhile.
        """
        self._number = 0
        self.pid = os.getpid()
        allowed = greet_limit(limit)
        deadline: Optional[float] = None
        while True:
            self._link = Link(connect(place, allowed))
            self._lines = _wire.LineBuffer()
            # To start a daemon takes time of its own.
            deadline = deadline or time.monotonic() + allowed
            if made is not None:
                made(self)
            try:
                left = max(deadline - time.monotonic(), GREET_PAUSE)
                return check_protocol(self.call("daemon.hello", greeting(client), left))
            except CallTimeoutError:
                self.close()
                raise unanswered("daemon.hello", allowed) from None
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
            with self._link.held() as made:
                made.settimeout(limit)
                made.sendall(_wire.request(self._number, method, params))
                made.settimeout(None)
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
        except (socket.timeout, TimeoutError):
            raise unanswered(method, limit) from None
        except OSError as error:
            raise lost(method) from error

    def receive(self, deadline: Optional[float] = None) -> Json:
        """The next message.

        Raises TimeoutError, and :class:`ConnectionLostError` at the end.
        """
        while True:
            text = self._lines.next()
            if text is not None:
                return _wire.message(text)
            data = self._link.receive(deadline)
            if not data:
                raise ConnectionLostError("the daemon closed the connection", hint="abx daemon status")
            self._lines.feed(data)

    def is_fresh(self) -> bool:
        """Whether nothing came on it since its last answer, not even its end."""
        if self.pid != os.getpid():
            return False
        try:
            with self._link.held() as made:
                made.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        """Closes it, also under whoever waits on it in another thread."""
        self._link.end()

    def __del__(self) -> None:
        # Connections that a client keeps go with it, without a warning for those who never close one.
        if hasattr(self, "_link"):
            self._link.end()


class Retries:
    """Whether a call that a daemon did not answer is made again, to the next one."""

    def __init__(self, repeatable: bool, timeout: Optional[float]) -> None:
        self._repeatable = repeatable
        self._allowed = greet_limit(timeout)
        self._deadline: Optional[float] = None
        #: Seconds to wait before that.
        self.pause = 0.0

    def may_ask(self, error: AbxError) -> bool:
        """Whether it is after this. Whose connection was lost is asked again once, if twice is as good."""
        if isinstance(error, ShuttingDownError):
            self.pause = GREET_PAUSE
            now = time.monotonic()
            # It may have waited for long before it was refused.
            self._deadline = self._deadline or now + self._allowed
            return error.is_unbegun and now < self._deadline
        self.pause = 0.0
        again, self._repeatable = self._repeatable, False
        return again


def greeting(client: str) -> Json:
    """What ``daemon.hello`` takes."""
    return {"client": client, "version": __version__, "protocol": _wire.PROTOCOL}


def greet_limit(limit: Optional[float]) -> float:
    """How long a greeting may take where a call may take so long."""
    return GREET_LIMIT if limit is None else min(limit, GREET_LIMIT)


def unanswered(method: str, limit: Optional[float]) -> CallTimeoutError:
    """A call that was not answered in time."""
    if method == "daemon.hello":
        return CallTimeoutError(
            f"the daemon did not answer within {round(limit or 0, 3):g} s; nothing was asked of it yet",
            hint="abx daemon restart",
        )
    return CallTimeoutError(
        f"{method} was not answered within {round(limit or 0, 3):g} s; what it began goes on",
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
