"""Where the daemon listens: computed as the programs compute it, so that all meet at one socket."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Optional

#: Longest path, in bytes, that the programs bind as it is.
_MAX_SOCKET_PATH_BYTES = 94


def home_dir(home: Optional[str] = None) -> str:
    """The home: what is asked for, else ``ABX_HOME``, else ``~/.abx``, with links resolved."""
    chosen = home or os.environ.get("ABX_HOME") or os.path.join(os.path.expanduser("~"), ".abx")
    return os.path.realpath(_absolute(chosen))


def socket_path(home: Optional[str] = None, socket: Optional[str] = None) -> str:
    """The socket: what is asked for, else ``ABX_SOCKET``, else the one of the home; a short one where that is
    too long.
    """
    chosen = socket or os.environ.get("ABX_SOCKET")
    if chosen:
        path = _absolute(chosen)
        return _bindable(path, path)
    root = home_dir(home)
    return _bindable(os.path.join(root, "daemon.sock"), root)


def default_store_dir() -> str:
    """Where the older SDK kept its sessions."""
    return os.path.realpath(os.path.join(os.path.expanduser("~"), ".abx", "sessions"))


def _absolute(path: str) -> str:
    return str(PurePosixPath(os.getcwd(), path))


def _bindable(path: str, named: str) -> str:
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES:
        return path
    return f"/tmp/abx-{os.geteuid()}/{_fnv1a(os.fsencode(named)):016x}.sock"


def _fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value
