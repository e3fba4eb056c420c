"""A connected socket that threads share."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
import time
from typing import Iterator, Optional

_READ_BYTES = 256 * 1024


class Link:
    """A connected socket that any thread may end while others use it.

    Its descriptor is closed when nobody uses it any more: who is about to send would else meet its number
    again as another connection's.
    """

    def __init__(self, made: socket.socket) -> None:
        self._made = made
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._users = 0
        self._ended = False

    def fileno(self) -> int:
        """Its descriptor's number."""
        return self._made.fileno()

    @contextlib.contextmanager
    def held(self) -> Iterator[socket.socket]:
        """The socket, which keeps its number meanwhile.

        Raises OSError where it was ended.
        """
        with self._lock:
            if self._ended:
                raise OSError(errno.EBADF, "the connection was closed")
            self._users += 1
        try:
            yield self._made
        finally:
            with self._lock:
                self._users -= 1
                if self._ended and not self._users:
                    self._made.close()

    def receive(self, deadline: Optional[float] = None) -> bytes:
        """The next bytes; none at the end.

        Raises TimeoutError where none come in time, and OSError.
        """
        with self.held() as made:
            if deadline is not None:
                poll = select.poll()
                poll.register(made, select.POLLIN)
                if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    raise TimeoutError("nothing came in time")
            return made.recv(_READ_BYTES)

    def end(self) -> None:
        """Ends it under whoever uses it."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            if self._pid != os.getpid():
                # A copy that a fork made: the connection is the other process's, and so are its users.
                self._made.close()
                return
            try:
                self._made.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            if not self._users:
                self._made.close()
