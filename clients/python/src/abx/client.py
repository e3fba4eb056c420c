"""The blocking client: every method of the daemon, events, and the bytes of commands."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, List, Mapping, Optional, Sequence, TypeVar, Union

from . import _calls, _launch
from ._calls import Call, MountLike, Path, PortLike
from ._closing import Closing
from ._connection import Connection, Retries
from ._exchange import Exchange, opening
from ._output import Collector, OnProgress, OnText, progress
from ._screen import Screen
from ._stream import ExecStream
from ._tar import copy_in, copy_out, finished, pack, unpack
from .errors import ConnectionLostError, ShuttingDownError
from .events import EventStream
from .models import (
    CommandResult,
    DaemonInfo,
    Deleted,
    Directory,
    Event,
    ExecInfo,
    Json,
    Limits,
    PtySize,
    Saved,
    Session,
    Snapshot,
    TerminalInfo,
    WriteInfo,
)

T = TypeVar("T")

Input = Union[str, bytes]

#: Connections that are kept for the next call.
_IDLE_CONNECTIONS = 8


def client_name() -> str:
    """What a client calls itself if not told otherwise: the program that runs."""
    name = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c", "-m") else ""
    return name or "python"


class Client(Closing):
    """A client of the daemon. Threads may share it; each call has a connection to itself while it lasts.

    The daemon is started where none listens, unless ``autostart`` is off. ``home`` and ``socket`` are those
    of ``abx --home`` and ``--socket``; ``program`` is the program ``abx`` if it is not on PATH. ``timeout``
    limits how long any call, and what opens a stream, may wait for its answer, in seconds.

    What needs a session that runs resumes one that does not. ``resume=False`` has that refused with
    :class:`WrongStateError`, or files read and written as they lie, and None is what the daemon's
    configuration says.
    """

    def __init__(
        self,
        *,
        home: Optional[Path] = None,
        socket: Optional[Path] = None,
        program: Optional[Path] = None,
        autostart: bool = True,
        timeout: Optional[float] = None,
        name: Optional[str] = None,
    ) -> None:
        self.place = _launch.Place(
            home=None if home is None else os.fspath(home),
            socket=None if socket is None else os.fspath(socket),
            program=None if program is None else os.fspath(program),
            autostart=autostart,
        )
        self.timeout = timeout
        self.name = name or client_name()
        self._idle: List[Connection] = []
        self._lock = threading.Lock()

    # Calls

    def call(self, method: str, params: Optional[Mapping[str, Any]] = None) -> Any:
        """Makes any call of the daemon and gives its result as it came."""
        return self._do(Call(method, dict(params or {}), lambda value: value))

    def info(self) -> DaemonInfo:
        """The daemon's account of itself."""
        return self._do(_calls.info())

    # Sessions

    def start(
        self,
        name: str,
        *,
        agent: Optional[str] = None,
        template: Optional[str] = None,
        image: Optional[str] = None,
        engine: Optional[str] = None,
        timeout: Optional[float] = None,
        idle: Optional[float] = None,
        idle_action: Optional[str] = None,
        on_boot: Optional[str] = None,
        keep: Optional[int] = None,
        env: Optional[Mapping[str, str]] = None,
        metadata: Optional[Mapping[str, str]] = None,
        workspace: Optional[MountLike] = None,
        mounts: Sequence[MountLike] = (),
        ports: Sequence[PortLike] = (),
        limits: Optional[Limits] = None,
        network: Optional[str] = None,
        profile: Optional[str] = None,
        reuse: bool = False,
        on_progress: Optional[OnProgress] = None,
    ) -> Session:
        """Starts a session. ``timeout`` and ``idle`` are seconds, 0 for never.

        ``idle_action`` is what is done when it was idle for so long: ``stop``, ``pause`` or ``save``.
        ``on_boot`` is what becomes of it after its engine went: ``resume`` or ``stopped``. ``keep`` is how
        many snapshots stay when it is saved, 0 for all: older ones without a note are deleted.

        Raises :class:`SessionAlreadyExistsError`, unless ``reuse``.
        """
        return self._do(
            _calls.start(
                name,
                agent=agent,
                template=template,
                image=image,
                engine=engine,
                timeout=timeout,
                idle=idle,
                idle_action=idle_action,
                on_boot=on_boot,
                keep=keep,
                env=env,
                metadata=metadata,
                workspace=workspace,
                mounts=mounts,
                ports=ports,
                limits=limits,
                network=network,
                profile=profile,
                reuse=reuse,
                op=_calls.operation() if on_progress else None,
            ),
            on_progress,
        )

    def list(self, *, status: Sequence[str] = (), agent: Optional[str] = None) -> List[Session]:
        """Sessions, newest first."""
        return self._do(_calls.sessions(status, agent))

    def get(self, name: str) -> Session:
        """One session."""
        return self._do(_calls.session(name))

    def stop(self, name: str, *, grace: Optional[float] = None) -> Session:
        """Stops a session; its files stay. ``grace`` is the time between TERM and KILL, in seconds."""
        return self._do(_calls.verb("session.stop", name, grace_ms=_calls.seconds(grace)))

    def save(
        self,
        name: str,
        *,
        snapshot: Optional[str] = None,
        note: Optional[str] = None,
        keep_running: bool = False,
        timeout: Optional[float] = None,
        on_progress: Optional[OnProgress] = None,
    ) -> Saved:
        """Stops a session and takes a snapshot; with ``keep_running`` under a short pause.

        ``timeout`` is how long the engine may take over it, 1 second to a day: past it the save is given up
        with :class:`EngineTimeoutError`.
        """
        op = _calls.operation() if on_progress else None
        return self._do(_calls.save(name, snapshot, note, keep_running, timeout, op), on_progress)

    def resume(
        self,
        name: str,
        *,
        snapshot: Optional[str] = None,
        discard: bool = False,
        on_progress: Optional[OnProgress] = None,
    ) -> Session:
        """Brings a session back; ``snapshot`` goes back to that one, after saving what it replaces.

        With ``discard`` that is not saved: what no snapshot holds is lost.
        """
        op = _calls.operation() if on_progress else None
        return self._do(
            _calls.verb("session.resume", name, snapshot=snapshot, discard=discard or None, op=op),
            on_progress,
        )

    def delete(self, name: str, *, keep_snapshots: bool = False, forget: bool = False) -> Deleted:
        """Removes a session with its files, and its snapshots unless they are to be kept.

        With ``forget`` also one that is on another engine than the one that answers: what is there stays
        there, and comes back as a session when that engine is used again.
        """
        return self._do(_calls.delete(name, keep_snapshots, forget))

    def connect(
        self, name: str, *, resume: Optional[bool] = None, on_progress: Optional[OnProgress] = None
    ) -> Session:
        """Resumes a session if it does not run, and notes that somebody came."""
        op = _calls.operation() if on_progress else None
        return self._do(_calls.verb("session.connect", name, resume=resume, op=op), on_progress)

    def pause(self, name: str) -> Session:
        """Freezes a session with its memory."""
        return self._do(_calls.verb("session.pause", name))

    def unpause(self, name: str) -> Session:
        """Thaws a paused session."""
        return self._do(_calls.verb("session.unpause", name))

    def notify(self, name: str, text: Optional[str] = None, *, state: Optional[str] = None) -> Session:
        """Says what a session's agent does: ``waiting``, ``working``, ``idle`` or ``done``."""
        return self._do(_calls.verb("session.notify", name, state=state, text=text))

    def wait(self, name: str, until: str, *, timeout: Optional[float] = None) -> bool:
        """Waits until a session is ``idle``, ``waiting``, ``done`` and so on; false when the time is up."""
        return self._do(_calls.wait(name, until, timeout))

    def fork(
        self,
        name: str,
        new_name: str,
        *,
        snapshot: Optional[str] = None,
        on_progress: Optional[OnProgress] = None,
    ) -> Session:
        """Starts a new session from a snapshot of this one, taken now if none is named."""
        op = _calls.operation() if on_progress else None
        return self._do(
            _calls.verb("session.fork", name, new_name=new_name, snapshot=snapshot, op=op), on_progress
        )

    def rename(self, name: str, new_name: str) -> Session:
        """Gives a session another name."""
        return self._do(_calls.verb("session.rename", name, new_name=new_name))

    def update(
        self,
        name: str,
        *,
        timeout: Optional[float] = None,
        idle: Optional[float] = None,
        idle_action: Optional[str] = None,
        on_boot: Optional[str] = None,
        keep: Optional[int] = None,
        metadata: Optional[Mapping[str, Optional[str]]] = None,
    ) -> Session:
        """Changes timeout and idle time (seconds, 0 for never), what goes with them as in :meth:`start`, or
        metadata, where None removes a key.
        """
        return self._do(_calls.update(name, timeout, idle, idle_action, on_boot, keep, metadata))

    def snapshots(self, name: Optional[str] = None) -> List[Snapshot]:
        """Snapshots, newest first: of one session, or all."""
        return self._do(_calls.snapshots(name))

    def delete_snapshots(self, *names: str) -> List[str]:
        """Deletes snapshots."""
        return self._do(_calls.delete_snapshots(names))

    # Commands

    def run(
        self,
        session: str,
        cmd: Union[str, Sequence[str]],
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        input: Optional[Input] = None,
        timeout: Optional[float] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        check: bool = False,
        resume: Optional[bool] = None,
    ) -> CommandResult:
        """Runs a command to its end. A list is program and arguments, text a script of the sandbox's shell.

        Output may be of any length; the callbacks get it as text, as it comes. The command ends with this
        call, also where that is interrupted. Raises :class:`CommandExitError` with ``check``, where it ends
        with another code than 0.
        """
        stream = self.exec(
            session,
            cmd,
            env=env,
            cwd=cwd,
            user=user,
            stdin=input is not None,
            timeout=timeout,
            resume=resume,
        )
        with stream:
            if input is not None:
                data = input.encode("utf-8") if isinstance(input, str) else input
                threading.Thread(target=_feed, args=(stream, data), daemon=True).start()
            return collect(stream, on_stdout, on_stderr, check)

    def exec(
        self,
        session: str,
        cmd: Union[str, Sequence[str]],
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: bool = False,
        tty: Optional[PtySize] = None,
        timeout: Optional[float] = None,
        key: Optional[str] = None,
        resume: Optional[bool] = None,
    ) -> ExecStream:
        """Starts a command and gives its bytes, in both directions."""
        return self.open_stream(
            opening(
                session,
                cmd=_calls.argv(cmd),
                env=dict(env) if env else None,
                cwd=cwd,
                user=user,
                stdin=stdin,
                tty=tty.to_wire() if tty else None,
                timeout_ms=_calls.seconds(timeout),
                # A start whose answer was lost is asked for again, and is not made twice.
                key=key or _calls.operation(),
                resume=resume,
            )
        )

    def exec_start(
        self,
        session: str,
        cmd: Union[str, Sequence[str]],
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        input: Optional[str] = None,
        timeout: Optional[float] = None,
        key: Optional[str] = None,
        resume: Optional[bool] = None,
    ) -> ExecInfo:
        """Starts a command that goes on without its caller; asking again with the same ``key`` gives the same
        one. ``input`` is all that it gets, or it has none.
        """
        return self._do(
            _calls.exec_start(
                session,
                _calls.argv(cmd),
                env,
                cwd,
                user,
                input,
                timeout,
                key or _calls.operation(),
                resume,
            )
        )

    def exec_follow(self, session: str, id: str, *, stdout_from: int = 0, stderr_from: int = 0) -> ExecStream:
        """The output of a command that runs already, as far as it is kept, and on."""
        return self.open_stream(opening(session, follow=id, stdout_from=stdout_from, stderr_from=stderr_from))

    def exec_list(self, session: Optional[str] = None) -> List[ExecInfo]:
        """Commands, oldest first."""
        return self._do(_calls.execs(session))

    def exec_kill(self, id: str, *, signal: Optional[int] = None) -> ExecInfo:
        """Signals a command; TERM, then KILL, if none is named."""
        return self._do(_calls.exec_kill(id, signal))

    def exec_wait(self, id: str, *, timeout: Optional[float] = None) -> ExecInfo:
        """Waits for a command's end, or so many seconds."""
        return self._do(_calls.exec_wait(id, timeout))

    def attach(
        self,
        session: str,
        cmd: Sequence[str] = (),
        *,
        terminal: str = "main",
        size: PtySize = PtySize(),
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        read_only: bool = False,
        scrollback: int = 0,
        agent: Optional[str] = None,
        resume: Optional[bool] = None,
    ) -> ExecStream:
        """Attaches to a terminal of a session, which is opened if it is not there; closing the stream
        detaches.

        ``agent`` is ``usual``, ``resume`` or ``fresh``, and starts the session's agent in place of a command.
        """
        return self.open_stream(
            opening(
                session,
                cmd=[str(word) for word in cmd],
                env=dict(env) if env else None,
                cwd=cwd,
                user=user,
                tty=size.to_wire(),
                stdin=not read_only,
                attach=True,
                terminal=terminal,
                read_only=read_only,
                scrollback=scrollback,
                agent=agent,
                resume=resume,
            )
        )

    def terminals(self, session: Optional[str] = None) -> List[TerminalInfo]:
        """Terminals that are open."""
        return self._do(_calls.terminals(session))

    def terminal_peek(self, session: str, terminal: str = "main", *, scrollback: int = 0) -> Screen:
        """The lines that a terminal shows, with its cursor, size and title."""
        return self._do(_calls.terminal_peek(session, terminal, scrollback))

    def terminal_close(self, session: str, terminal: str = "main") -> None:
        """Ends what runs on a terminal."""
        self._do(_calls.terminal_close(session, terminal))

    def open_stream(self, first: Json) -> ExecStream:
        """A raw stream with this opening, under this client's name."""
        return ExecStream(self.place, Exchange({"client": self.name, **first}), self.timeout)

    # Files

    def read_file(self, session: str, path: Path, *, resume: Optional[bool] = None) -> bytes:
        """The whole of a file."""
        data, more = self._do(_calls.file_read(session, path, resume))
        if not more:
            return data
        # One copy sees one state of the file, where pages could be of several.
        with self.open_stream(copy_out(session, path, resume)) as stream:
            return unpack(b"".join(chunk for _, chunk in stream), path)

    def write_file(
        self,
        session: str,
        path: Path,
        data: Input,
        *,
        mode: Optional[int] = None,
        create_dirs: bool = True,
        resume: Optional[bool] = None,
    ) -> WriteInfo:
        """Puts a file into a sandbox, in the place of one that is there."""
        content = data.encode("utf-8") if isinstance(data, str) else data
        if len(content) <= _calls.MAX_WRITE_BYTES:
            return self._do(_calls.file_write(session, path, content, mode, create_dirs, resume))
        # An empty one first: it makes the directories, keeps or sets the mode, and tells where links lead.
        made = self._do(_calls.file_write(session, path, b"", mode, create_dirs, resume))
        mode = self._mode(session, made.path, resume) if mode is None else mode
        with self.open_stream(copy_in(session, made.path, resume)) as stream:
            stream.write(pack(stream.copy, content, mode))
            stream.end_input()
            finished(stream.wait())
        return WriteInfo(made.path, len(content))

    def list_files(
        self, session: str, path: Optional[Path] = None, *, resume: Optional[bool] = None
    ) -> Directory:
        """What is in a directory; where commands run, if none is named."""
        return self._do(_calls.file_list(session, path, resume))

    def _mode(self, session: str, path: str, resume: Optional[bool]) -> int:
        directory, name = os.path.split(path)
        listed = self.list_files(session, directory, resume=resume)
        found = [entry.mode for entry in listed if entry.name == name]
        return found[0] if found else 0o644

    # Events

    def events(
        self,
        *,
        since: Optional[int] = None,
        session: Optional[str] = None,
        kinds: Sequence[str] = (),
        reconnect: Optional[float] = 60.0,
    ) -> EventStream:
        """Events as they come; with ``since``, first those after that number that are kept.

        It is subscribed when this returns: nothing that happens afterwards is missed. A daemon that goes away
        is waited for, ``reconnect`` seconds long (None for ever), and events go on where they were.
        """
        return EventStream(self.place, self.name, since, session, kinds, reconnect, self.timeout)

    def history(
        self,
        session: Optional[str] = None,
        *,
        since: int = 0,
        kinds: Sequence[str] = (),
        limit: Optional[int] = None,
    ) -> List[Event]:
        """What has happened, oldest first, of the last 10,000 events."""
        pages = _calls.Pages(since, limit)
        while pages.more:
            pages.add(self._do(_calls.events(pages.since, session, kinds, limit)))
        return pages.events

    # Connections

    def close(self) -> None:
        """Closes the connections that are kept. The client may be used again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _do(self, call: Call[T], on_progress: Optional[OnProgress] = None) -> T:
        def event(message: Json) -> None:
            told = progress(message, call.params.get("op"))
            if told is not None and on_progress is not None:
                on_progress(told)

        retries = Retries(call.repeatable, self.timeout)
        while True:
            connection = self._take()
            try:
                answer = connection.call(call.method, call.params, self.timeout, event)
            except (ConnectionLostError, ShuttingDownError) as error:
                connection.close()
                if not retries.may_ask(error):
                    raise
            except Exception as error:
                # An answer leaves the connection as good as it was, and anything else does not.
                self._give(connection) if getattr(error, "code", None) is not None else connection.close()
                raise
            except BaseException:
                connection.close()
                raise
            else:
                self._give(connection)
                return call.read(answer)
            time.sleep(retries.pause)

    def _take(self) -> Connection:
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            if connection.is_fresh():
                return connection
            connection.close()
        return Connection(self.place, self.name, self.timeout)

    def _give(self, connection: Connection) -> None:
        with self._lock:
            if len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()


def collect(
    stream: ExecStream, on_stdout: Optional[OnText], on_stderr: Optional[OnText], check: bool
) -> CommandResult:
    """Reads a command to its end."""
    collector = Collector(on_stdout, on_stderr)
    for name, data in stream:
        told, text = collector.add(name, data)
        if told and text:
            told(text)
    for told, text in collector.end():
        if told and text:
            told(text)
    return collector.result(stream.wait(), stream.id, stream.lost_bytes, check)


def _feed(stream: ExecStream, data: bytes) -> None:
    try:
        stream.write(data)
        stream.end_input()
    except ConnectionLostError:
        # Who reads hears of it, with more to say.
        pass
