"""What the daemon tells, as values. Fields that a newer daemon adds are in ``raw`` and break nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

Json = Dict[str, Any]


def parse_time(value: Union[str, datetime, None]) -> Optional[datetime]:
    """A time, aware and in UTC; None for what is absent.

    Text without a zone is taken as UTC, as the daemon writes it; a ``datetime`` without one is local time, as
    all of Python takes it.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        text = value.strip().replace(" ", "T", 1)
        if text[-1:] in "Zz":
            text = text[:-1] + "+00:00"
        value = datetime.fromisoformat(_six_digits(text))
        if value.tzinfo is None:
            return value.replace(tzinfo=timezone.utc)
    return value.astimezone(timezone.utc)


def _six_digits(text: str) -> str:
    # Before 3.11, fromisoformat takes three digits of a second or six, and nothing else.
    head, dot, rest = text.partition(".")
    if not dot:
        return text
    digits = len(rest) - len(rest.lstrip("0123456789"))
    return f"{head}.{rest[:digits][:6].ljust(6, '0')}{rest[digits:]}"


def format_time(value: Optional[datetime]) -> Optional[str]:
    """A time as the wire has it: UTC, with milliseconds. One without a zone is local."""
    if value is None:
        return None
    utc = value.astimezone(timezone.utc)
    return utc.strftime("%Y-%m-%dT%H:%M:%S.") + f"{utc.microsecond // 1000:03d}Z"


def _time(data: Mapping[str, Any], key: str) -> Optional[datetime]:
    value = data.get(key)
    return parse_time(value) if isinstance(value, str) else None


def _some_time(data: Mapping[str, Any], key: str) -> datetime:
    return _time(data, key) or datetime.fromtimestamp(0, timezone.utc)


def _text(data: Mapping[str, Any], key: str) -> Optional[str]:
    value = data.get(key)
    return None if value is None else str(value)


def _texts(value: Any) -> Dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {str(k): v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in value.items()}


@dataclass(frozen=True)
class Mount:
    """A directory of the host inside the sandbox."""

    source: str
    target: str = ""
    read_only: bool = False

    def to_wire(self) -> Json:
        """As the daemon takes it."""
        return {"source": self.source, "target": self.target, "read_only": self.read_only}

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "Mount":
        """As the daemon gives it."""
        return cls(str(data.get("source")), str(data.get("target")), bool(data.get("read_only")))


@dataclass(frozen=True)
class Port:
    """A port of the sandbox that the host's loopback forwards; ``host`` None asks for a free one."""

    container: int
    host: Optional[int] = None
    protocol: str = "tcp"

    def to_wire(self) -> Json:
        """As the daemon takes it."""
        return {"container": self.container, "host": self.host, "protocol": self.protocol}

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "Port":
        """As the daemon gives it."""
        return cls(int(data.get("container", 0)), data.get("host"), str(data.get("protocol", "tcp")))


@dataclass(frozen=True)
class Limits:
    """Resource limits; None is none."""

    cpus: Optional[float] = None
    memory_bytes: Optional[int] = None
    pids: Optional[int] = None

    def to_wire(self) -> Json:
        """As the daemon takes it."""
        return {"cpus": self.cpus, "memory_bytes": self.memory_bytes, "pids": self.pids}

    @classmethod
    def from_wire(cls, data: Any) -> "Limits":
        """As the daemon gives it."""
        data = data if isinstance(data, Mapping) else {}
        return cls(data.get("cpus"), data.get("memory_bytes"), data.get("pids"))


@dataclass(frozen=True)
class Session:
    """A session as it was when it was asked for."""

    id: str
    name: str
    #: The sandbox's name: the container's.
    sandbox: str
    #: The engine's id of the container.
    sandbox_id: Optional[str]
    #: ``docker``, or ``external`` for a sandbox that the daemon does not run.
    engine: str
    agent: str
    template: str
    image: Optional[str]
    image_id: Optional[str]
    #: ``starting``, ``running``, ``paused``, ``stopped``, ``saved``, ``lost`` or ``unknown``.
    status: str
    #: What is being done right now.
    operation: Optional[str]
    #: Why it does not run.
    reason: Optional[str]
    created_at: datetime
    last_active: datetime
    last_connected: Optional[datetime]
    expires_at: Optional[datetime]
    timeout_ms: Optional[int]
    idle_ms: Optional[int]
    exec_count: int
    oom_events: int
    #: The newest snapshot's name.
    snapshot: Optional[str]
    snapshots: int
    workspace: Optional[Mount]
    mounts: Sequence[Mount]
    ports: Sequence[Port]
    limits: Limits
    network: str
    profile: str
    #: Names of the environment; values are masked.
    env: Mapping[str, str]
    metadata: Mapping[str, str]
    revision: int
    #: ``working``, ``waiting``, ``idle`` or ``done``, where the daemon tells, and since when.
    attention: Optional[str]
    attention_note: Optional[str]
    attention_at: Optional[datetime]
    #: ``stop``, ``pause`` or ``save``: what is done when it was idle for long enough.
    idle_action: Optional[str]
    #: Since when its idle time counts, and when something will be done; None while it does not count.
    idle_since: Optional[datetime]
    idle_at: Optional[datetime]
    #: Why it does not: ``exec``, ``terminal``, ``client``, ``cpu``.
    busy: Sequence[str]
    #: ``resume`` or ``stopped``: what becomes of it after its engine went; None as the configuration says.
    on_boot: Optional[str]
    #: How many snapshots stay when it is saved: older ones without a note are deleted. None for all.
    keep: Optional[int]
    #: What runs its commands: ``init``, in the sandbox, or ``engine``; None where the daemon runs none.
    runtime: Optional[str]
    #: In what it is not as its snapshot was saved, such as a mount that is another. Told by what made its
    #: sandbox from a snapshot, and not afterwards.
    warnings: Sequence[str]
    #: Everything that the daemon said.
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "Session":
        """As the daemon gives it."""
        workspace = data.get("workspace")
        return cls(
            id=str(data.get("id")),
            name=str(data.get("name")),
            sandbox=str(data.get("sandbox")),
            sandbox_id=_text(data, "sandbox_id"),
            engine=str(data.get("engine")),
            agent=str(data.get("agent")),
            template=str(data.get("template")),
            image=_text(data, "image"),
            image_id=_text(data, "image_id"),
            status=str(data.get("status")),
            operation=_text(data, "operation"),
            reason=_text(data, "reason"),
            created_at=_some_time(data, "created_at"),
            last_active=_some_time(data, "last_active"),
            last_connected=_time(data, "last_connected"),
            expires_at=_time(data, "expires_at"),
            timeout_ms=data.get("timeout_ms"),
            idle_ms=data.get("idle_ms"),
            exec_count=int(data.get("exec_count") or 0),
            oom_events=int(data.get("oom_events") or 0),
            snapshot=_text(data, "snapshot"),
            snapshots=int(data.get("snapshots") or 0),
            workspace=Mount.from_wire(workspace) if isinstance(workspace, Mapping) else None,
            mounts=[Mount.from_wire(m) for m in data.get("mounts") or []],
            ports=[Port.from_wire(p) for p in data.get("ports") or []],
            limits=Limits.from_wire(data.get("limits")),
            network=str(data.get("network")),
            profile=str(data.get("profile")),
            env=_texts(data.get("env")),
            metadata=_texts(data.get("metadata")),
            revision=int(data.get("revision") or 0),
            attention=_text(data, "attention"),
            attention_note=_text(data, "attention_note"),
            attention_at=_time(data, "attention_at"),
            idle_action=_text(data, "idle_action"),
            idle_since=_time(data, "idle_since"),
            idle_at=_time(data, "idle_at"),
            busy=[str(why) for why in data.get("busy") or []],
            on_boot=_text(data, "on_boot"),
            keep=data.get("keep"),
            runtime=_text(data, "runtime"),
            warnings=[str(warning) for warning in data.get("warnings") or []],
            raw=dict(data),
        )


@dataclass(frozen=True)
class Snapshot:
    """A saved state of a session's files."""

    name: str
    session: str
    image_id: str
    created_at: datetime
    note: Optional[str]
    parent: Optional[str]
    #: Of the whole image.
    size_bytes: int
    #: What of that is its own, and not shared with what it was taken on; None where that is not known.
    own_bytes: Optional[int]
    #: Who asked for it: ``client`` and ``pid``, with ``abxd`` for one that the daemon took by itself.
    creator: Optional[Mapping[str, Any]]
    #: What it does not hold: ``kind`` and ``target`` each.
    excluded: Sequence[Mapping[str, str]]
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "Snapshot":
        """As the daemon gives it."""
        return cls(
            name=str(data.get("name")),
            session=str(data.get("session")),
            image_id=str(data.get("image_id")),
            created_at=_some_time(data, "created_at"),
            note=_text(data, "note"),
            parent=_text(data, "parent"),
            size_bytes=int(data.get("size_bytes") or 0),
            own_bytes=data.get("own_bytes"),
            creator=data.get("creator"),
            excluded=[_texts(entry) for entry in data.get("excluded") or []],
            raw=dict(data),
        )


@dataclass(frozen=True)
class Saved:
    """What a save made."""

    session: Session
    snapshot: Snapshot
    #: Snapshots that were deleted for it, since the session keeps only so many.
    pruned: Sequence[str] = ()

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "Saved":
        """As the daemon gives it."""
        return cls(
            session=Session.from_wire(data["session"]),
            snapshot=Snapshot.from_wire(data["snapshot"]),
            pruned=[str(name) for name in data.get("pruned") or []],
        )


@dataclass(frozen=True)
class Deleted:
    """What a delete removed."""

    name: str
    snapshots: Sequence[str]


@dataclass(frozen=True)
class ExecInfo:
    """A command as the daemon knows it."""

    id: str
    session: str
    key: Optional[str]
    cmd: Sequence[str]
    terminal: Optional[str]
    tty: bool
    detached: bool
    #: ``running`` or ``exited``.
    status: str
    started_at: datetime
    ended_at: Optional[datetime]
    exit_code: Optional[int]
    signal: Optional[int]
    reason: Optional[str]

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "ExecInfo":
        """As the daemon gives it."""
        return cls(
            id=str(data.get("id")),
            session=str(data.get("session")),
            key=_text(data, "key"),
            cmd=[str(word) for word in data.get("cmd") or []],
            terminal=_text(data, "terminal"),
            tty=bool(data.get("tty")),
            detached=bool(data.get("detached")),
            status=str(data.get("status")),
            started_at=_some_time(data, "started_at"),
            ended_at=_time(data, "ended_at"),
            exit_code=data.get("exit_code"),
            signal=data.get("signal"),
            reason=_text(data, "reason"),
        )


@dataclass(frozen=True)
class TerminalInfo:
    """A terminal that a session has."""

    session: str
    terminal: str
    exec: str
    cmd: Sequence[str]
    clients: int
    started_at: datetime
    #: None where that is not known.
    size: Optional["PtySize"] = None

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "TerminalInfo":
        """As the daemon gives it."""
        return cls(
            session=str(data.get("session")),
            terminal=str(data.get("terminal")),
            exec=str(data.get("exec")),
            cmd=[str(word) for word in data.get("cmd") or []],
            clients=int(data.get("clients") or 0),
            started_at=_some_time(data, "started_at"),
            size=PtySize.from_wire(data["size"]) if data.get("size") else None,
        )


@dataclass(frozen=True)
class Event:
    """Something that happened. Pass over kinds that you do not know."""

    seq: int
    at: datetime
    #: Such as ``session.created``; ``lagged`` where ``data["missed"]`` events are not kept any more.
    kind: str
    session: Optional[str]
    session_id: Optional[str]
    revision: Optional[int]
    #: Who asked for it: ``client`` and ``pid``; None where the daemon did it by itself.
    by: Optional[Mapping[str, Any]]
    data: Mapping[str, Any]

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "Event":
        """As the daemon gives it."""
        more = data.get("data")
        return cls(
            seq=int(data.get("seq") or 0),
            at=_some_time(data, "at"),
            kind=str(data.get("kind")),
            session=_text(data, "session"),
            session_id=_text(data, "session_id"),
            revision=data.get("revision"),
            by=data.get("by"),
            data=more if isinstance(more, Mapping) else {},
        )


@dataclass(frozen=True)
class Progress:
    """How far an operation is: a hint, in the engine's words."""

    text: str
    current_bytes: Optional[int] = None
    total_bytes: Optional[int] = None

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "Progress":
        """As the daemon gives it; what it tells may stand in the event or in its data."""
        more = data.get("data")
        data = {**data, **more} if isinstance(more, Mapping) else data
        return cls(str(data.get("text", "")), data.get("current_bytes"), data.get("total_bytes"))


class FileType(str, Enum):
    """What a file is."""

    FILE = "file"
    DIR = "dir"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True)
class EntryInfo:
    """One entry of a directory."""

    name: str
    path: str
    type: FileType
    size: int
    mode: int
    modified_at: Optional[datetime]
    #: Where a symbolic link leads, as it is written in it.
    link_target: Optional[str]

    @classmethod
    def from_wire(cls, data: Mapping[str, Any], directory: str) -> "EntryInfo":
        """As the daemon gives it."""
        kinds = {"file": FileType.FILE, "directory": FileType.DIR, "symlink": FileType.SYMLINK}
        name = str(data.get("name"))
        return cls(
            name=name,
            path=f"{directory.rstrip('/')}/{name}",
            type=kinds.get(str(data.get("kind")), FileType.OTHER),
            size=int(data.get("size_bytes") or 0),
            mode=int(data.get("mode") or 0),
            modified_at=_time(data, "modified_at"),
            link_target=_text(data, "link_target"),
        )


class Directory(List[EntryInfo]):
    """What is in a directory, by name."""

    #: Its absolute path, links followed.
    path: str = ""
    #: Whether there are more entries than these.
    truncated: bool = False

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "Directory":
        """As the daemon gives it."""
        path = str(data.get("path"))
        found = cls(EntryInfo.from_wire(entry, path) for entry in data.get("entries") or [])
        found.path = path
        found.truncated = bool(data.get("truncated"))
        return found


@dataclass(frozen=True)
class WriteInfo:
    """A file that was written."""

    path: str
    size: int


@dataclass(frozen=True)
class PtySize:
    """A terminal's size in characters."""

    rows: int = 24
    cols: int = 80

    def to_wire(self) -> Json:
        """As the daemon takes it."""
        return {"cols": self.cols, "rows": self.rows}

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "PtySize":
        """As the daemon gives it."""
        return cls(rows=int(data.get("rows") or 0), cols=int(data.get("cols") or 0))


@dataclass(frozen=True)
class CommandResult:
    """What a command did. Its own failure is a result, not an error."""

    #: The command's code; 124 if its time ran out, 126 or 127 if it could not be run or found, 128+n for
    #: signal n.
    exit_code: int
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    #: One line when it did not end by itself.
    error: Optional[str] = None
    #: The command's id.
    id: str = ""
    #: Bytes of output that were lost with the connection.
    lost_bytes: int = 0

    @property
    def stdout(self) -> str:
        """Standard output as text; what is not UTF-8 is replaced."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text; what is not UTF-8 is replaced."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """Whether it ended with 0."""
        return self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        """Whether its time ran out."""
        return self.exit_code == 124 and self.error is not None


@dataclass(frozen=True)
class DaemonInfo:
    """The daemon's account of itself."""

    version: str
    protocol: int
    pid: int
    home: str
    socket: str
    started_at: datetime
    sessions: int
    engines: Sequence[Mapping[str, Any]]
    notices: Sequence[str]
    #: ``name``, ``value`` and ``source`` each.
    settings: Sequence[Mapping[str, Any]]
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "DaemonInfo":
        """As the daemon gives it."""
        return cls(
            version=str(data.get("version")),
            protocol=int(data.get("protocol") or 0),
            pid=int(data.get("pid") or 0),
            home=str(data.get("home")),
            socket=str(data.get("socket")),
            started_at=_some_time(data, "started_at"),
            sessions=int(data.get("sessions") or 0),
            engines=list(data.get("engines") or []),
            notices=[str(notice) for notice in data.get("notices") or []],
            settings=list(data.get("settings") or []),
            raw=dict(data),
        )
