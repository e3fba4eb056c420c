"""The same as ``events``, on asyncio."""

from __future__ import annotations

import asyncio
import time
from typing import Callable, List, Optional, Sequence

from . import _launch
from ._async_connection import AsyncConnection
from ._closing import AsyncClosing
from .errors import AbxError, ConnectionLostError, SessionNotFoundError
from .events import Following, is_passing, may_go_on, pause
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
    ) -> None:
        self._place = place
        self._name = name
        self._following = Following(since, session, kinds)
        self._reconnect = reconnect
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
            await self._subscribe()
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
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._messages is not None and self._messages.empty():
            self._messages.put_nowait(None)

    async def __aenter__(self) -> "AsyncEventStream":
        return await self.open()

    async def _subscribe(self) -> None:
        messages: "asyncio.Queue[Optional[Json]]" = asyncio.Queue(_WAITING_MESSAGES)
        connection = await AsyncConnection.open(self._place, self._name, messages.put)
        try:
            await self._ask(connection)
            while self._following.since is None:
                message = await messages.get()
                if message is None:
                    raise ConnectionLostError("the daemon went away")
                event = self._following.take(message)
                if event is not None:
                    self._waiting.append(event)
        except BaseException:
            connection.close()
            raise
        self._connection, self._messages = connection, messages

    async def _ask(self, connection: AsyncConnection) -> None:
        if self._following.name is not None:
            try:
                self._following.named(await connection.call("session.get", {"name": self._following.name}))
            except SessionNotFoundError:
                self._following.named(None)
        self._following.subscribed(await connection.call("event.subscribe", self._following.params()))

    async def _resubscribe(self, error: Exception) -> None:
        connection, self._connection, self._messages = self._connection, None, None
        if connection is not None:
            connection.close()
        limit = None if self._reconnect is None else time.monotonic() + self._reconnect
        attempt = 0
        while not self._closed:
            if limit is not None and time.monotonic() >= limit:
                raise error
            await asyncio.sleep(pause(attempt))
            attempt += 1
            try:
                return await self._subscribe()
            except AbxError as failure:
                if not is_passing(failure):
                    raise
                error = failure
