"""The methods of the daemon, each said once: what is sent, and what the answer is made into.

The blocking and the asyncio client differ in how they carry a call, and in nothing else.
"""

from __future__ import annotations

import base64
import binascii
import os
import uuid
from dataclasses import dataclass
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ._screen import Screen
from .info import SessionInfo
from .models import (
    DaemonInfo,
    Deleted,
    Directory,
    Event,
    ExecInfo,
    Json,
    Limits,
    Mount,
    Port,
    Saved,
    Session,
    Snapshot,
    TerminalInfo,
    WriteInfo,
)

T = TypeVar("T")

#: Most bytes of a file that go into one message: that may have 8 MiB, and what JSON has to escape grows
#: sixfold.
MAX_WRITE_BYTES = 1024 * 1024

Path = Union[str, "os.PathLike[str]"]
MountLike = Union[Mount, str, "os.PathLike[str]"]
PortLike = Union[Port, int]


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call, and how to read its answer."""

    method: str
    params: Json
    read: Callable[[Any], T]
    #: Whether asking twice is as good as asking once.
    repeatable: bool = False


def seconds(value: Optional[float]) -> Optional[int]:
    """Seconds as milliseconds; None stays, and means the daemon's default.

    Raises ValueError for what is no time: 0 is never for most, and nothing else may become that by rounding.
    """
    if value is None:
        return None
    try:
        ms = 0 if isinstance(value, (str, bytes)) else round(value * 1000)
        if ms > 0 or value == 0:
            return ms
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"a time is a number of seconds, 0 or at least 0.001, not {value!r}")


def patience(value: Optional[float]) -> Optional[int]:
    """The same for how long to wait, of which less than nothing may be left."""
    return 0 if isinstance(value, (int, float)) and value < 0.001 else seconds(value)


def operation() -> str:
    """A name for an operation whose progress somebody wants to hear."""
    return uuid.uuid4().hex


def _given(**params: Any) -> Json:
    return {key: value for key, value in params.items() if value is not None}


def _mount(value: MountLike) -> Json:
    if isinstance(value, Mount):
        mount = value
    else:
        mount = Mount(os.fspath(value))
    source = mount.source
    if source.startswith(("~", "./", "../")) or source in (".", ".."):
        source = os.path.abspath(os.path.expanduser(source))
    elif "/" in source:
        source = os.path.abspath(source)
    return {**mount.to_wire(), "source": source}


def _workspace(value: MountLike) -> Json:
    # A workspace is always a directory of this machine, whereas another mount's name may be a volume's.
    mount = value if isinstance(value, Mount) else Mount(os.fspath(value))
    return {**mount.to_wire(), "source": os.path.abspath(os.path.expanduser(mount.source))}


def _session(value: Any) -> Session:
    return Session.from_wire(value)


def _sessions(value: Any) -> List[Session]:
    return [Session.from_wire(each) for each in value or []]


def info() -> Call[DaemonInfo]:
    """``daemon.info``."""
    return Call("daemon.info", {}, DaemonInfo.from_wire, repeatable=True)


def start(
    name: str,
    *,
    agent: Optional[str],
    template: Optional[str],
    image: Optional[str],
    engine: Optional[str],
    timeout: Optional[float],
    idle: Optional[float],
    idle_action: Optional[str],
    on_boot: Optional[str],
    keep: Optional[int],
    env: Optional[Mapping[str, str]],
    metadata: Optional[Mapping[str, str]],
    workspace: Optional[MountLike],
    mounts: Sequence[MountLike],
    ports: Sequence[PortLike],
    limits: Optional[Limits],
    network: Optional[str],
    profile: Optional[str],
    reuse: bool,
    op: Optional[str],
) -> Call[Session]:
    """``session.start``."""
    params = _given(
        name=name,
        agent=agent,
        template=template,
        image=image,
        engine=engine,
        timeout_ms=seconds(timeout),
        idle_ms=seconds(idle),
        idle_action=idle_action,
        on_boot=on_boot,
        keep=keep,
        env=dict(env) if env else None,
        metadata=dict(metadata) if metadata else None,
        workspace=None if workspace is None else _workspace(workspace),
        mounts=[_mount(mount) for mount in mounts] or None,
        ports=[(Port(port) if isinstance(port, int) else port).to_wire() for port in ports] or None,
        limits=limits.to_wire() if limits else None,
        network=network,
        profile=profile,
        reuse=reuse or None,
        op=op,
    )
    return Call("session.start", params, _session)


def sessions(status: Sequence[str], agent: Optional[str]) -> Call[List[Session]]:
    """``session.list``."""
    return Call("session.list", _given(status=list(status) or None, agent=agent), _sessions, repeatable=True)


def session(name: str) -> Call[Session]:
    """``session.get``."""
    return Call("session.get", {"name": name}, _session, repeatable=True)


def verb(method: str, name: str, **params: Any) -> Call[Session]:
    """A verb that takes a session and gives it as it is then."""
    return Call(method, {"name": name, **_given(**params)}, _session)


def wait(name: str, until: str, timeout: Optional[float]) -> Call[bool]:
    """``session.wait``."""
    params = {"name": name, "for": until, **_given(timeout_ms=patience(timeout))}
    return Call("session.wait", params, lambda waited: bool(waited["reached"]), repeatable=True)


def save(
    name: str,
    snapshot: Optional[str],
    note: Optional[str],
    keep_running: bool,
    timeout: Optional[float],
    op: Optional[str],
) -> Call[Saved]:
    """``session.save``."""
    params = _given(
        name=name,
        snapshot=snapshot,
        note=note,
        keep_running=keep_running or None,
        timeout_ms=seconds(timeout),
        op=op,
    )
    return Call("session.save", params, Saved.from_wire)


def delete(name: str, keep_snapshots: bool, forget: bool) -> Call[Deleted]:
    """``session.delete``."""
    params = _given(name=name, keep_snapshots=keep_snapshots, forget=forget or None)
    return Call("session.delete", params, lambda gone: Deleted(str(gone["deleted"]), list(gone["snapshots"])))


def update(
    name: str,
    timeout: Optional[float],
    idle: Optional[float],
    idle_action: Optional[str],
    on_boot: Optional[str],
    keep: Optional[int],
    metadata: Optional[Mapping[str, Optional[str]]],
) -> Call[Session]:
    """``session.update``."""
    return verb(
        "session.update",
        name,
        timeout_ms=seconds(timeout),
        idle_ms=seconds(idle),
        idle_action=idle_action,
        on_boot=on_boot,
        keep=keep,
        metadata=dict(metadata) if metadata else None,
    )


def snapshots(name: Optional[str]) -> Call[List[Snapshot]]:
    """``snapshot.list``."""
    return Call(
        "snapshot.list", _given(name=name), lambda all: [Snapshot.from_wire(s) for s in all], repeatable=True
    )


def delete_snapshots(names: Sequence[str]) -> Call[List[str]]:
    """``snapshot.delete``."""
    return Call("snapshot.delete", {"snapshots": list(names)}, lambda gone: [str(name) for name in gone])


def argv(cmd: Union[str, Sequence[str]]) -> List[str]:
    """Program and arguments: text is a script of the sandbox's shell, and goes there as one argument."""
    if isinstance(cmd, str):
        return ["/bin/sh", "-c", cmd]
    words = [str(word) for word in cmd]
    if not words:
        raise ValueError("a command has at least one word")
    return words


def exec_start(
    session: str,
    cmd: Sequence[str],
    env: Optional[Mapping[str, str]],
    cwd: Optional[str],
    user: Optional[str],
    input: Optional[str],
    timeout: Optional[float],
    key: str,
    resume: Optional[bool],
) -> Call[ExecInfo]:
    """``exec.start``."""
    params = _given(
        session=session,
        cmd=list(cmd),
        env=dict(env) if env else None,
        cwd=cwd,
        user=user,
        stdin=input,
        timeout=seconds(timeout),
        key=key,
        resume=resume,
    )
    return Call("exec.start", params, ExecInfo.from_wire, repeatable=True)


def execs(session: Optional[str]) -> Call[List[ExecInfo]]:
    """``exec.list``."""
    return Call(
        "exec.list",
        _given(session=session),
        lambda all: [ExecInfo.from_wire(e) for e in all],
        repeatable=True,
    )


def exec_kill(id: str, signal: Optional[int]) -> Call[ExecInfo]:
    """``exec.kill``."""
    return Call("exec.kill", _given(id=id, signal=signal), ExecInfo.from_wire)


def exec_wait(id: str, timeout: Optional[float]) -> Call[ExecInfo]:
    """``exec.wait``."""
    return Call("exec.wait", _given(id=id, timeout=patience(timeout)), ExecInfo.from_wire, repeatable=True)


def terminals(session: Optional[str]) -> Call[List[TerminalInfo]]:
    """``terminal.list``."""
    return Call(
        "terminal.list",
        _given(session=session),
        lambda all: [TerminalInfo.from_wire(t) for t in all],
        repeatable=True,
    )


def terminal_peek(session: str, terminal: str, scrollback: int) -> Call[Screen]:
    """``terminal.peek``."""
    params = {"session": session, "terminal": terminal, "scrollback": scrollback}
    return Call("terminal.peek", params, Screen.from_wire, repeatable=True)


def terminal_close(session: str, terminal: str) -> Call[None]:
    """``terminal.close``."""
    return Call("terminal.close", {"session": session, "terminal": terminal}, lambda done: None)


def file_read(session: str, path: Path, resume: Optional[bool]) -> Call[Tuple[bytes, bool]]:
    """``file.read``: the beginning of a file, and whether it goes on."""

    def read(part: Any) -> Tuple[bytes, bool]:
        return decode(str(part["content"]), str(part["encoding"])), bool(part["truncated"])

    params = _given(session=session, path=os.fspath(path), resume=resume)
    return Call("file.read", params, read, repeatable=True)


def file_write(
    session: str, path: Path, data: bytes, mode: Optional[int], create_dirs: bool, resume: Optional[bool]
) -> Call[WriteInfo]:
    """``file.write``, of at most :data:`MAX_WRITE_BYTES`."""
    place = _given(session=session, path=os.fspath(path), mode=mode, create_dirs=create_dirs, resume=resume)
    params = {**place, **encode(data)}
    return Call("file.write", params, lambda done: WriteInfo(str(done["path"]), int(done["size_bytes"])))


def file_list(session: str, path: Optional[Path], resume: Optional[bool]) -> Call[Directory]:
    """``file.list``."""
    params = _given(session=session, path=None if path is None else os.fspath(path), resume=resume)
    return Call("file.list", params, Directory.from_wire, repeatable=True)


def events(
    since: int, session: Optional[str], kinds: Sequence[str], limit: Optional[int]
) -> Call[List[Event]]:
    """``event.list``."""
    params = _given(since=since, session=session, kinds=list(kinds) or None, limit=limit)
    return Call("event.list", params, lambda all: [Event.from_wire(e) for e in all], repeatable=True)


class Pages:
    """Answers of ``event.list`` put together: each has as many events as a message takes."""

    def __init__(self, since: int, limit: Optional[int]) -> None:
        self.since = since
        self.events: List[Event] = []
        self.more = True
        self._is_end = limit is not None

    def add(self, page: List[Event]) -> None:
        """Takes the next one."""
        self.events += page
        # The last so many are asked for at once.
        self.more = bool(page) and not self._is_end
        if page:
            self.since = page[-1].seq


def store_save(info: SessionInfo, namespace: Optional[str]) -> Call[None]:
    """``store.save``."""
    return Call("store.save", info.to_row(namespace), lambda row: None, repeatable=True)


def store_load(name: str, namespace: Optional[str]) -> Call[Optional[SessionInfo]]:
    """``store.load``."""
    params = _given(name=name, namespace=namespace)
    return Call("store.load", params, lambda row: SessionInfo.from_row(row) if row else None, repeatable=True)


def store_list(namespace: Optional[str]) -> Call[List[SessionInfo]]:
    """``store.list_all``."""
    params = _given(namespace=namespace)
    return Call(
        "store.list_all", params, lambda rows: [SessionInfo.from_row(row) for row in rows], repeatable=True
    )


def store_delete(name: str, namespace: Optional[str]) -> Call[bool]:
    """``store.delete``: whether it was there."""
    return Call("store.delete", _given(name=name, namespace=namespace), lambda done: bool(done["deleted"]))


def encode(data: bytes) -> Dict[str, str]:
    """Bytes as a message holds them."""
    try:
        return {"content": data.decode("utf-8"), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"content": base64.b64encode(data).decode("ascii"), "encoding": "base64"}


def decode(content: str, encoding: str) -> bytes:
    """The bytes that a message holds."""
    if encoding != "base64":
        return content.encode("utf-8")
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the daemon sent base64 that is none: {error}") from None
