"""Starting the daemon where none listens, through the program ``abx``, which knows how."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from typing import List, Optional

from . import _paths
from .errors import DaemonUnreachableError

#: How long ``abx daemon start`` may take, in seconds. It ends by itself long before.
START_LIMIT = 60.0

_INSTALL_HINT = (
    "install abx (cargo install --locked --path .), put it on PATH, or pass program='/path/to/abx'"
)


@dataclass(frozen=True)
class Place:
    """Which daemon is meant, and how to have it run."""

    home: Optional[str] = None
    socket: Optional[str] = None
    program: Optional[str] = None
    autostart: bool = True

    @property
    def path(self) -> str:
        """The socket."""
        return _paths.socket_path(self.home, self.socket)

    def command(self) -> List[str]:
        """What starts the daemon.

        Raises :class:`DaemonUnreachableError` where there is no such program, or it is not wanted.
        """
        if not self.autostart:
            raise DaemonUnreachableError(
                f"no daemon listens on {self.path}", hint="start it: abx daemon start (autostart is off)"
            )
        command = [self._program(), "daemon", "start"]
        if self.home:
            command += ["--home", self.home]
        if self.socket:
            command += ["--socket", self.socket]
        return command

    def _program(self) -> str:
        if self.program:
            found = shutil.which(self.program)
            if found is None:
                raise DaemonUnreachableError(
                    f"{self.program} is not a program that can be run", hint=_INSTALL_HINT
                )
            return found
        beside = os.path.join(os.path.expanduser("~"), ".cargo", "bin", "abx")
        found = shutil.which("abx") or shutil.which(beside)
        if found is None:
            raise DaemonUnreachableError(
                f"no daemon listens on {self.path}, and the program abx is not on PATH", hint=_INSTALL_HINT
            )
        return found


def is_absent(error: OSError) -> bool:
    """Whether this is how it shows that nobody listens."""
    return error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)


def failed(code: Optional[int], output: bytes) -> DaemonUnreachableError:
    """Why the daemon did not start."""
    said = output.decode("utf-8", "replace").strip()
    how = "did not end" if code is None else f"ended with {code}"
    return DaemonUnreachableError(
        f"abx daemon start {how}" + (f":\n{said}" if said else ""), hint="abx doctor says what is wrong"
    )


def cannot_connect(path: str, error: OSError) -> DaemonUnreachableError:
    """Why a socket that is there cannot be used."""
    return DaemonUnreachableError(f"cannot connect to {path}: {error.strerror or error}", hint="abx doctor")
