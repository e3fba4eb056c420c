"""What can go wrong, one class per kind that the daemon tells apart.

Every error of this package is an :class:`AbxError`. Its text is for people, with a hint on what to do;
programs look at the class, or at ``kind``, which is stable.
"""

from __future__ import annotations

import builtins
from typing import Any, Dict, Mapping, Optional, Type


class AbxError(Exception):
    """Anything that this package raises on purpose."""

    #: The daemon's stable word for it.
    kind: str = "internal"

    def __init__(
        self,
        message: str,
        *,
        hint: Optional[str] = None,
        kind: Optional[str] = None,
        code: Optional[int] = None,
        data: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
        self.data: Dict[str, Any] = dict(data or {})
        if kind is not None:
            self.kind = kind

    def __str__(self) -> str:
        return f"{self.message}\nHint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> "tuple[Any, ...]":
        return _rebuild, (type(self), self.message, self.hint, self.kind, self.code, self.data)


def _rebuild(
    cls: Type[AbxError],
    message: str,
    hint: Optional[str],
    kind: str,
    code: Optional[int],
    data: Mapping[str, Any],
) -> AbxError:
    error = cls.__new__(cls)
    AbxError.__init__(error, message, hint=hint, kind=kind, code=code, data=data)
    return error


class SessionError(AbxError):
    """Something about a session's name or existence."""


class SessionNotFoundError(SessionError):
    """No session has this name."""

    kind = "session_not_found"


class SessionAlreadyExistsError(SessionError):
    """A session of this name exists already."""

    kind = "session_exists"


class InvalidNameError(SessionError, ValueError):
    """The name breaks a rule for session names; the message says which."""

    kind = "invalid_name"


class InvalidParamsError(AbxError, ValueError):
    """A value that cannot be used."""

    kind = "invalid_params"


class WrongStateError(AbxError):
    """The verb cannot be applied to a session in this state."""

    kind = "wrong_state"


class BusyError(AbxError):
    """Another operation holds the session and this one does not wait."""

    kind = "busy"


class SandboxLostError(AbxError):
    """The sandbox is gone and no snapshot can bring it back."""

    kind = "sandbox_lost"


class SnapshotNotFoundError(AbxError):
    """No snapshot has this name, or its image is gone."""

    kind = "snapshot_not_found"


class ImageNotFoundError(AbxError):
    """The engine neither has the image nor can pull it."""

    kind = "image_not_found"


class WorkspaceMissingError(AbxError):
    """A directory to mount does not exist, or may not be mounted."""

    kind = "workspace_missing"


class EngineError(AbxError):
    """The engine refused; its own words are in the message."""

    kind = "engine_error"


class EngineUnavailableError(EngineError):
    """No engine answers; the message lists each address tried."""

    kind = "engine_unavailable"


class EngineTimeoutError(EngineError, builtins.TimeoutError):
    """The engine did not answer in time."""

    kind = "engine_timeout"


class ExecNotFoundError(AbxError):
    """No command has this id."""

    kind = "exec_not_found"


class CommandNotFoundError(AbxError):
    """The sandbox has no such command."""

    kind = "command_not_found"


class CommandNotExecutableError(AbxError):
    """The command exists but cannot be run."""

    kind = "command_not_executable"


class LimitError(AbxError):
    """A limit of the daemon was reached; the message names it."""

    kind = "limit"


class StoreError(AbxError):
    """The table of sessions cannot take a change."""


class StoreBusyError(StoreError):
    """Another process holds the table."""

    kind = "store_busy"


class StoreFullError(StoreError):
    """The disk that holds the table is full."""

    kind = "store_full"


class StoreNewerError(StoreError):
    """The table was written by a newer abx."""

    kind = "store_newer"


class ShuttingDownError(AbxError):
    """The daemon is stopping and takes no new work."""

    kind = "shutting_down"

    @property
    def is_unbegun(self) -> bool:
        """Whether it said that nothing was begun, so that the next daemon may be asked."""
        return self.data.get("begun") is False


class InternalError(AbxError):
    """A fault in abx itself, or a kind that this version does not know."""

    kind = "internal"


class SandboxFileNotFoundError(AbxError, FileNotFoundError):
    """The sandbox, or the daemon's machine, has nothing at this path."""

    kind = "file_not_found"

    def __str__(self) -> str:
        return AbxError.__str__(self)


class FileDeniedError(AbxError):
    """A file of the daemon's machine cannot be read or written."""

    kind = "file_denied"


class DaemonUnreachableError(AbxError, ConnectionError):
    """No daemon answers, and none could be started."""

    kind = "daemon_unreachable"

    def __str__(self) -> str:
        return AbxError.__str__(self)


class ConnectionLostError(DaemonUnreachableError):
    """The connection ended before the answer: what was asked may have been done, or may still be going on."""

    kind = "connection_lost"


class ProtocolError(AbxError):
    """The other side does not speak this protocol, or another version of it."""

    kind = "protocol"


class CallTimeoutError(AbxError, builtins.TimeoutError):
    """The daemon did not answer within the client's own limit; what was asked goes on."""

    kind = "call_timeout"

    def __str__(self) -> str:
        return AbxError.__str__(self)


class CommandExitError(AbxError):
    """A command that was to succeed (``check=True``) did not."""

    kind = "command_exit"

    def __init__(self, exit_code: int, stdout: str, stderr: str, reason: Optional[str] = None) -> None:
        last = stderr.strip().rsplit("\n", 1)[-1]
        text = ": ".join(part for part in (f"the command ended with {exit_code}", reason or last) if part)
        super().__init__(text)
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr
        self.reason = reason

    def __reduce__(self) -> "tuple[Any, ...]":
        return type(self), (self.exit_code, self.stdout, self.stderr, self.reason)


#: JSON-RPC's own codes, which come without a kind.
_CODES: Dict[int, Type[AbxError]] = {-32700: ProtocolError, -32600: ProtocolError, -32601: ProtocolError}


def _classes() -> Dict[str, Type[AbxError]]:
    found: Dict[str, Type[AbxError]] = {}
    pending = [AbxError]
    while pending:
        for cls in pending.pop().__subclasses__():
            pending.append(cls)
            if "kind" in vars(cls):
                found[cls.kind] = cls
    return found


#: The class of each kind.
KINDS: Dict[str, Type[AbxError]] = _classes()


def from_wire(error: Any) -> AbxError:
    """The exception of an error object of the wire. A kind that is not known becomes an
    :class:`InternalError`.
    """
    if not isinstance(error, dict):
        return ProtocolError("the daemon sent an error that is no object")
    raw = error.get("data")
    data: Dict[str, Any] = raw if isinstance(raw, dict) else {}
    code = error.get("code") if isinstance(error.get("code"), int) else None
    message = str(error.get("message", "the daemon gave no reason"))
    causes = data.get("causes")
    if isinstance(causes, list):
        message = ": ".join([message, *(str(cause) for cause in causes)])
    kind = data.get("kind")
    cls = KINDS.get(kind, InternalError) if isinstance(kind, str) else _CODES.get(code or 0, InternalError)
    hint = data.get("hint")
    return _rebuild(
        cls, message, str(hint) if hint else None, kind if isinstance(kind, str) else cls.kind, code, data
    )
