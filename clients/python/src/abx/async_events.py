"""The same as ``events``, on asyncio."""

from __future__ import annotations

import asyncio
import time
from typing import Callable, List, Optional, Sequence

from . import _launch
from ._async_connection import AsyncConnection, Attempt
from ._closing import AsyncClosing
from ._connection import greet_limit, unanswered
from .errors import AbxError, ConnectionLostError, SessionNotFoundError
from .events import Absence, Following, may_go_on
from .models import Event, Json

#: Messages that wait to be taken. Whoever takes none has the daemon wait, and then hears what is kept from
#: there on.
_WAITING_MESSAGES = 1000


class AsyncEventStream(AsyncClosing):
    """An asynchronous iterator of events. It is subscribed with the first ``await`` on it, or ``async
    with``.
    """

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
        self._absence: Optional[Absence] = None
        self._attempt = Attempt()
        self._waiting: List[Event] = []
        self._closed = False
        self._begun = False
        self._connection: Optional[AsyncConnection] = None
        self._messages: "Optional[asyncio.Queue[Optional[Json]]]" = None

    @property
    def last_seq(self) -> Optional[int]:
        """The number to give as ``since`` in order to go on from here."""
        return self._following.since

    async def open(self) -> "AsyncEventStream":
        """Subscribes, unless that is done: nothing that happens afterwards is missed."""
        if not self._begun:
            await self._try(greet_limit(self._timeout))
            self._begun = True
            # A daemon that the user stops stays stopped: who only listens does not start it.
            place = self._place
            self._place = _launch.Place(place.home, place.socket, place.program, autostart=False)
        return self

    async def next(self) -> Optional[Event]:
        """The next event; None where the stream is closed. May be cancelled: nothing is lost."""
        await self.open()
        while not self._closed:
            if self._waiting:
                return self._waiting.pop(0)
            if self._following.ended and self._connection is not None and not self._connection.ended:
                try:
                    await self._ask(self._connection)
                except AbxError as error:
                    if not may_go_on(error):
                        raise
                    await self._resubscribe(error)
                continue
            messages = self._messages
            message = None if messages is None else await messages.get()
            if message is not None:
                event = self._following.take(message)
                if event is not None:
                    return event
            elif not self._closed:
                await self._resubscribe(ConnectionLostError("the daemon went away"))
        return None

    async def wait_for(self, wanted: Callable[[Event], bool], timeout: float) -> Event:
        """Reads on until an event is wanted.

        Raises TimeoutError where none is in so many seconds.
        """

        async def search() -> Event:
            async for event in self:
                if wanted(event):
                    return event
            raise ConnectionLostError("the events were closed")

        try:
            return await asyncio.wait_for(search(), timeout)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no such event within {timeout:g} s") from None

    def __aiter__(self) -> "AsyncEventStream":
        return self

    async def __anext__(self) -> Event:
        event = await self.next()
        if event is None:
            raise StopAsyncIteration
        return event

    def close(self) -> None:
        """Ends it."""
        self._closed = True
        self._attempt.end()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._messages is not None and self._messages.empty():
            self._messages.put_nowait(None)

    async def __aenter__(self) -> "AsyncEventStream":
        return await self.open()

    async def _subscribe(self) -> None:
        messages: "asyncio.Queue[Optional[Json]]" = asyncio.Queue(_WAITING_MESSAGES)
        connection = await AsyncConnection.open(self._place, self._name, messages.put, self._timeout)
        try:
            await self._ask(connection)
            while self._following.since is None:
                message = await messages.get()
                if message is None:
                    raise ConnectionLostError("the daemon went away")
                event = self._following.take(message)
                if event is not None:
                    self._waiting.append(event)
            if self._closed:
                raise ConnectionLostError("the events were closed")
        except BaseException:
            connection.close()
            raise
        self._connection, self._messages, self._absence = connection, messages, None

    async def _try(self, limit: float) -> None:
        """Subscribes on a new connection, all of which may take so many seconds."""
        try:
            await self._attempt.make(self._subscribe(), limit)
        except AbxError:
            raise
        except asyncio.TimeoutError:
            raise unanswered("event.subscribe", limit) from None

    async def _ask(self, connection: AsyncConnection) -> None:
        limit = greet_limit(self._timeout)
        if self._following.name is not None:
            asked = {"name": self._following.name}
            try:
                self._following.named(await connection.call("session.get", asked, limit))
            except SessionNotFoundError:
                self._following.named(None)
        self._following.subscribed(await connection.call("event.subscribe", self._following.params(), limit))

    async def _resubscribe(self, error: Exception) -> None:
        connection, self._connection, self._messages = self._connection, None, None
        if connection is not None:
            connection.close()
        # Kept from one call to the next, since who waits in short steps is cancelled in between.
        absence = self._absence = self._absence or Absence(self._reconnect)
        while not self._closed:
            if absence.is_over():
                self._absence = None
                raise error
            try:
                await self._attempt.make(asyncio.sleep(max(0.0, absence.due - time.monotonic())))
                return await self._try(absence.limit(self._timeout))
            except (AbxError, OSError) as failure:
                if self._closed:
                    return
                if not may_go_on(failure):
                    self._absence = None
                    raise
                error = failure
                absence.failed()
