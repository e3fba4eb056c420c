"""A raw stream without a socket: what is sent to open it, what its frames say, and how it goes on after a
loss.
"""

from __future__ import annotations

import json
from typing import Any, Deque, Dict, List, Mapping, Optional, Tuple

from . import _wire
from ._version import __version__
from .errors import (
    AbxError,
    ConnectionLostError,
    DaemonUnreachableError,
    ProtocolError,
    ShuttingDownError,
    from_wire,
)
from .models import Json, PtySize

#: How long a lost command is looked for, in seconds: a daemon restarts in less.
FOLLOW_LIMIT = 30.0

#: Time between two attempts, in seconds.
FOLLOW_PAUSE = 0.1

#: One piece of output: ``stdout`` or ``stderr``, and its bytes.
Chunk = Tuple[str, bytes]

#: What an opening says of a command that is to be begun.
_BEGINS = ("terminal", "agent", "key", "timeout_ms")

#: What a daemon says of a command that is no more.
_GONE = ("exec_not_found", "session_not_found", "wrong_state", "sandbox_lost")

_NAMES = {_wire.STDOUT: "stdout", _wire.STDERR: "stderr"}


def opening(session: str, **fields: Any) -> Json:
    """The first line of a stream; fields that are None are left out."""
    given = {key: value for key, value in fields.items() if value is not None}
    return {"version": __version__, "protocol": _wire.PROTOCOL, "session": session, **given}


class Exchange:
    """One command, over as many connections as it takes."""

    def __init__(self, first: Json) -> None:
        self.opening = first
        self.exec_id = ""
        self.note: Optional[str] = None
        self.copy: Mapping[str, Any] = {}
        #: The code, once it has ended, and why where it did not end by itself.
        self.exit: Optional[Tuple[int, Optional[str]]] = None
        #: Bytes of output that are no longer kept.
        self.lost_bytes = 0
        self._durable = False
        self._have: Dict[str, int] = {"stdout": 0, "stderr": 0}

    @property
    def tty(self) -> bool:
        """Whether it is on a terminal."""
        return self.opening.get("tty") is not None

    @property
    def fed(self) -> bool:
        """Whether it takes input of which nobody would see that some was lost with a connection."""
        return "copy" in self.opening or bool(self.opening.get("stdin") and not self.tty)

    def hello(self) -> bytes:
        """What is sent first on each connection."""
        return _wire.PREFACE + _wire.line(self.opening)

    def answered(self, text: bytes) -> None:
        """Takes the daemon's line.

        Raises what the daemon refuses it with.
        """
        answer = _wire.message(text)
        if answer.get("error") is not None:
            raise from_wire(answer["error"])
        if answer.get("protocol", _wire.PROTOCOL) != _wire.PROTOCOL:
            raise ProtocolError(
                f"the daemon speaks protocol {answer.get('protocol')}, this client {_wire.PROTOCOL}",
                hint="bring both to one version, then: abx daemon restart",
            )
        self.exec_id = str(answer.get("exec") or self.exec_id)
        self._durable = bool(answer.get("durable"))
        self.note = answer.get("note") or self.note
        self.copy = answer.get("copy") or {}
        for name in self._have:
            begins = answer.get(f"{name}_from")
            if isinstance(begins, int) and not self.tty:
                self.lost_bytes += max(0, begins - self._have[name])
                self._have[name] = max(begins, self._have[name])

    def take(self, kind: int, payload: bytes) -> Optional[Chunk]:
        """Takes a frame, and gives the output that is in it, if any.

        Raises the error that ends the stream.
        """
        if kind in _NAMES:
            name = _NAMES[kind]
            self._have[name] += len(payload)
            return name, payload
        if kind == _wire.EXIT:
            said = _wire.message(payload)
            code = said.get("exit_code")
            if not isinstance(code, int):
                raise ProtocolError("the daemon sent an end without a code")
            self.exit = code, said.get("reason")
        elif kind == _wire.ERROR:
            raise from_wire(_wire.message(payload))
        return None

    def take_rest(self, frames: _wire.FrameBuffer, into: Deque[Chunk]) -> None:
        """Takes the frames that came before the connection ended."""
        while self.exit is None:
            frame = frames.next()
            if frame is None:
                return
            try:
                chunk = self.take(*frame)
            except AbxError as error:
                if not self.can_go_on(error):
                    raise
                return
            if chunk is not None:
                into.append(chunk)

    def can_go_on(self, error: Optional[AbxError] = None) -> bool:
        """Whether the command may be followed on a new connection, and if so prepares that.

        Input that was on its way when the connection ended is lost, so a command that is fed is not followed;
        on a terminal, somebody sees it and types again.
        """
        if error is not None and not isinstance(error, (ShuttingDownError, ConnectionLostError)):
            return False
        if self.fed:
            return False
        if not self.exec_id:
            return "key" in self.opening
        if not self._durable:
            return False
        # By its id alone: what else names it would begin another where it has ended meanwhile.
        self.opening = {key: value for key, value in self.opening.items() if key not in _BEGINS}
        self.opening["follow"] = self.exec_id
        self.opening.update(stdout_from=self._have["stdout"], stderr_from=self._have["stderr"])
        return True

    def may_open(self, error: AbxError) -> bool:
        """Whether what was not opened for this reason may be opened again."""
        if isinstance(error, ShuttingDownError) and error.is_unbegun:
            return True
        return isinstance(error, ConnectionLostError) and self.can_go_on(error)

    def is_passing(self, error: AbxError) -> bool:
        """Whether an attempt that failed so may be made again: never where that could begin a second
        command.
        """
        if isinstance(error, ShuttingDownError) and error.is_unbegun:
            return True
        if isinstance(error, (ShuttingDownError, ConnectionLostError)):
            return bool(self.exec_id) or "key" in self.opening
        return isinstance(error, DaemonUnreachableError)

    def check_gone(self, error: AbxError) -> None:
        """Raises :class:`ConnectionLostError` where the daemon says with this that the command is no more."""
        if self.exec_id and error.kind in _GONE:
            raise ConnectionLostError(
                f"the command cannot be followed any more: {error.message}",
                hint=error.hint or f"abx exec wait {self.exec_id}",
            ) from error

    def lost(self) -> ConnectionLostError:
        """What to raise where it ends here."""
        return ConnectionLostError(
            "the connection to the command was lost",
            hint=f"abx exec wait {self.exec_id}" if self._durable else "abx daemon status",
        )

    @staticmethod
    def input(data: bytes) -> List[bytes]:
        """Frames of input; none for no bytes, since an empty frame ends it."""
        return _wire.frames(_wire.INPUT, data)

    @staticmethod
    def end_of_input() -> bytes:
        """The frame that ends the input."""
        return _wire.frame(_wire.INPUT, b"")

    def resized(self, size: PtySize) -> bytes:
        """The frame that tells a new size, which also counts for the next connection."""
        if self.tty:
            self.opening = {**self.opening, "tty": size.to_wire()}
        return _wire.frame(_wire.RESIZE, json.dumps(size.to_wire()).encode())

    @staticmethod
    def signal(number: int) -> bytes:
        """The frame that signals the command."""
        return _wire.frame(_wire.SIGNAL, bytes((number,)))


class Told:
    """What a stream tells of its command, however it is read."""

    _exchange: Exchange

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
