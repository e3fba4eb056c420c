"""Whose process listens at the other end: what is sent there has secrets in it."""

from __future__ import annotations

import os
import socket
import struct
from typing import Optional

from .errors import DaemonUnreachableError

#: macOS: the level of options of Unix sockets, the option, and the size of its ``struct xucred``, which
#: begins with a version and the user.
_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES = 0, 1, 76


def check(made: socket.socket, path: str) -> None:
    """Refuses a connection to another user's process, before anything is sent on it. Root's may be trusted.

    Raises :class:`DaemonUnreachableError`.
    """
    uid = _uid(made)
    if uid is not None and uid not in (0, os.geteuid()):
        raise DaemonUnreachableError(
            f"{path} belongs to a process of user {uid}, not of this one",
            hint="use a home of your own: Client(home=...), or ABX_HOME",
        )


def _uid(made: socket.socket) -> Optional[int]:
    """The user of the process that listens; None where the process is gone."""
    try:
        if hasattr(socket, "SO_PEERCRED"):
            size = struct.calcsize("iII")
            told = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            return int(struct.unpack("iII", told)[1])
        told = made.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES)
        return int(struct.unpack_from("=II", told)[1])
    except OSError:
        return None
