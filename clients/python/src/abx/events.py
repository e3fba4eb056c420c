"""Events as they come, over as many connections as it takes."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Type

from . import _launch
from ._closing import Closing
from ._connection import Connection, greet_limit, unanswered
from .errors import (
    AbxError,
    CallTimeoutError,
    ConnectionLostError,
    DaemonUnreachableError,
    SessionNotFoundError,
)
from .models import Event, Json

#: Pauses between attempts to reach a daemon that went away, in seconds; the last one repeats.
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)


def pause(attempt: int) -> float:
    """How long to wait before this attempt, counted from 0."""
    return PAUSES[min(attempt, len(PAUSES) - 1)]


def is_passing(error: AbxError) -> bool:
    """Whether a daemon that answers so may be back soon."""
    return isinstance(error, DaemonUnreachableError) or error.kind in ("shutting_down", "limit")


def may_go_on(error: Exception) -> bool:
    """Whether a subscription that ended so is to be made again, on another connection."""
    if isinstance(error, AbxError) and is_passing(error):
        return True
    return isinstance(error, (ConnectionLostError, CallTimeoutError, OSError))


#: Least time that an attempt to subscribe again has, in seconds: who asks for events without waiting comes
#: back to a daemon as well.
_ATTEMPT_LEAST = 0.1


class Absence:
    """How long a daemon has been away for a subscriber, and when it is looked for next."""

    def __init__(self, reconnect: Optional[float]) -> None:
        now = time.monotonic()
        self._end = None if reconnect is None else now + reconnect
        self._attempt = 0
        #: When the next attempt is due.
        self.due = now + pause(0)

    def is_over(self) -> bool:
        """Whether it is not waited for any longer."""
        return self._end is not None and time.monotonic() >= self._end

    def limit(self, timeout: Optional[float]) -> float:
        """What an attempt may take, in seconds, where a call may take ``timeout``."""
        allowed = greet_limit(timeout)
        return allowed if self._end is None else max(0.0, min(allowed, self._end - time.monotonic()))

    def failed(self) -> None:
        """Takes an attempt that failed."""
        self._attempt += 1
        self.due = time.monotonic() + pause(self._attempt)


class Following:
    """Where a subscriber is, without a socket: what to ask for next, and what a message means to it."""

    def __init__(self, since: Optional[int], session: Optional[str], kinds: Sequence[str]) -> None:
        #: The number of the last event that was given, or passed over by the daemon; None for from now on.
        self.since = since
        self._session = session
        #: The session whose id is yet to be asked for.
        self.name = session
        self._kinds = list(kinds)
        self._id: Optional[int] = None
        #: Whether the subscription has ended and is to be asked for again.
        self.ended = False

    def named(self, session: Any) -> None:
        """Takes the session of that name, or None where none has it now: then the daemon knows what is meant.

        It is followed by its id from then on: on the next connection it may have another name, and another
        session its own.
        """
        self.name = None
        if isinstance(session, dict) and isinstance(session.get("id"), str):
            self._session = session["id"]

    def params(self) -> Json:
        """What to ask ``event.subscribe`` for."""
        given: Dict[str, Any] = {"since": self.since, "session": self._session, "kinds": self._kinds or None}
        return {key: value for key, value in given.items() if value is not None}

    def subscribed(self, id: Any) -> None:
        """Takes the subscription's id."""
        self._id = id if isinstance(id, int) else None
        self.ended = False

    def take(self, message: Mapping[str, Any]) -> Optional[Event]:
        """The event that a message tells, if it is one to pass on."""
        params = message.get("params")
        if message.get("method") != "event" or not isinstance(params, dict):
            return None
        if self._id is not None and params.get("subscription") not in (None, self._id):
            return None
        event = Event.from_wire(params)
        if event.kind == "subscribed":
            # A lower number than ours is that of a table which was begun anew.
            missed = int(event.data.get("missed") or 0) > 0 or event.seq < (self.since or 0)
            self.since = event.seq
            # Beside progress this is the only place where a hole shows: who keeps a picture has to draw it
            # anew.
            return _as(event, "lagged") if missed else None
        if event.kind == "lagged":
            # What is kept comes again from the number that it tells.
            self.since, self.ended = event.seq, True
            return None
        if event.kind != "progress":
            self.since = max(event.seq, self.since or 0)
        return event


def _as(event: Event, kind: str) -> Event:
    return Event(event.seq, event.at, kind, None, None, None, None, event.data)


class EventStream(Closing):
    """An iterator of events, which waits for the next. ``close`` ends it, from another thread too."""

    def __init__(
        self,
        place: _launch.Place,
        name: str,
        since: Optional[int],
        session: Optional[str],
        kinds: Sequence[str],
        reconnect: Optional[float],
        timeout: Optional[float] = None,
    ) -> None:
        self._place = place
        self._name = name
        self._following = Following(since, session, kinds)
        self._reconnect = reconnect
        self._timeout = timeout
        self._waiting: List[Event] = []
        self._closed = threading.Event()
        self._connection: Optional[Connection] = None
        self._joining: Optional[Connection] = None
        self._absence: Optional[Absence] = None
        self._subscribe(greet_limit(timeout))
        # A daemon that the user stops stays stopped: who only listens does not start it.
        self._place = _launch.Place(place.home, place.socket, place.program, autostart=False)

    @property
    def last_seq(self) -> Optional[int]:
        """The number to give as ``since`` in order to go on from here."""
        return self._following.since

    def next(self, timeout: Optional[float] = None) -> Optional[Event]:
        """The next event; None where none comes in so many seconds, or the stream is closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._closed.is_set():
            if self._waiting:
                return self._waiting.pop(0)
            connection = self._connection
            try:
                if connection is None:
                    raise ConnectionLostError("the daemon went away")
                if self._following.ended:
                    # Nothing more comes until it is asked for.
                    self._ask(connection, self._limit(deadline))
                    continue
                message = connection.receive(deadline)
            except AbxError as error:
                if self._closed.is_set():
                    break
                if not may_go_on(error):
                    raise
                if not self._resubscribe(error, deadline):
                    return None
                continue
            except TimeoutError:
                return None
            except OSError as error:
                if self._closed.is_set():
                    break
                if not self._resubscribe(error, deadline):
                    return None
                continue
            event = self._following.take(message)
            if event is not None:
                return event
        return None

    def wait_for(self, wanted: Callable[[Event], bool], timeout: float) -> Event:
        """Reads on until an event is wanted.

        Raises TimeoutError where none is in so many seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            event = self.next(max(0.0, deadline - time.monotonic()))
            if event is None:
                raise TimeoutError(f"no such event within {timeout:g} s")
            if wanted(event):
                return event

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self.next()
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Ends it."""
        # In this order: who subscribes meanwhile finds either this, or its connection ended here.
        self._closed.set()
        for connection in (self._connection, self._joining):
            if connection is not None:
                connection.close()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        super().__exit__(kind, error, trace)
        self._drop()

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self._drop()

    def _subscribe(self, limit: float) -> None:
        """Subscribes on a new connection, all of which may take so many seconds."""
        connection = Connection(self._place, self._name, limit, self._join)
        deadline = time.monotonic() + limit
        try:
            self._ask(connection, limit)
            # The first notification tells the number from which on nothing is missed.
            while self._following.since is None:
                event = self._following.take(connection.receive(deadline))
                if event is not None:
                    self._waiting.append(event)
            self._connection, self._absence = connection, None
            self._check_open()
        except AbxError:
            connection.close()
            raise
        except TimeoutError:
            connection.close()
            raise unanswered("event.subscribe", limit) from None
        except BaseException:
            connection.close()
            raise
        finally:
            self._joining = None

    def _join(self, connection: Connection) -> None:
        self._joining = connection
        self._check_open()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ConnectionLostError("the events were closed")

    def _limit(self, deadline: Optional[float]) -> float:
        """What asking may take now, in seconds."""
        allowed = greet_limit(self._timeout)
        if deadline is None:
            return allowed
        return min(allowed, max(_ATTEMPT_LEAST, deadline - time.monotonic()))

    def _ask(self, connection: Connection, limit: float) -> None:
        def early(message: Json) -> None:
            event = self._following.take(message)
            if event is not None:
                self._waiting.append(event)

        if self._following.name is not None:
            asked = {"name": self._following.name}
            try:
                self._following.named(connection.call("session.get", asked, limit))
            except SessionNotFoundError:
                self._following.named(None)
        self._following.subscribed(connection.call("event.subscribe", self._following.params(), limit, early))

    def _resubscribe(self, error: Exception, deadline: Optional[float]) -> bool:
        """Whether it is subscribed again, which is not so where the time is up: then this goes on when it is
        called again.

        Raises where the daemon stays away too long.
        """
        self._drop()
        absence = self._absence = self._absence or Absence(self._reconnect)
        while True:
            if absence.is_over():
                self._absence = None
                raise error
            now = time.monotonic()
            until = absence.due if deadline is None else min(absence.due, deadline)
            if self._closed.wait(max(0.0, until - now)):
                return False
            if time.monotonic() < absence.due:
                return False
            try:
                self._subscribe(min(absence.limit(self._timeout), self._limit(deadline)))
                return True
            except (AbxError, OSError) as failure:
                if self._closed.is_set():
                    return False
                if not may_go_on(failure):
                    self._absence = None
                    raise
                error = failure
                absence.failed()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
