"""The same as ``client``, on asyncio."""

from __future__ import annotations

import asyncio
import inspect
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, TypeVar, Union

from . import _calls, _launch
from ._async_connection import AsyncConnection
from ._async_stream import AsyncExecStream
from ._calls import Call, MountLike, Path, PortLike
from ._closing import AsyncClosing
from ._connection import Retries
from ._exchange import Exchange, opening
from ._output import Collector, OnProgress, progress
from ._screen import Screen
from ._tar import copy_in, copy_out, finished, pack, unpack
from .async_events import AsyncEventStream
from .client import Input, client_name
from .errors import ConnectionLostError, ShuttingDownError
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

#: A function, or a coroutine function.
OnText = Callable[[str], Any]


class AsyncClient(AsyncClosing):
    """A client of the daemon for one event loop at a time. All calls share a connection, and none waits for
    another.

    The daemon is started where none listens, unless ``autostart`` is off. ``home`` and ``socket`` are those
    of ``abx --home`` and ``--socket``; ``program`` is the program ``abx`` if it is not on PATH. ``timeout``
    limits how long any call, and what opens a stream, may wait for its answer, in seconds. A call
    that is cancelled leaves what it began going on.

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
        self._connection: Optional[AsyncConnection] = None
        self._connecting: "Optional[asyncio.Task[AsyncConnection]]" = None
        self._watched: Dict[str, OnProgress] = {}

    # Calls

    async def call(self, method: str, params: Optional[Mapping[str, Any]] = None) -> Any:
        """Makes any call of the daemon and gives its result as it came."""
        return await self._do(Call(method, dict(params or {}), lambda value: value))

    async def info(self) -> DaemonInfo:
        """The daemon's account of itself."""
        return await self._do(_calls.info())

    # Sessions

    async def start(
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
        return await self._do(
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

    async def list(self, *, status: Sequence[str] = (), agent: Optional[str] = None) -> List[Session]:
        """Sessions, newest first."""
        return await self._do(_calls.sessions(status, agent))

    async def get(self, name: str) -> Session:
        """One session."""
        return await self._do(_calls.session(name))

    async def stop(self, name: str, *, grace: Optional[float] = None) -> Session:
        """Stops a session; its files stay. ``grace`` is the time between TERM and KILL, in seconds."""
        return await self._do(_calls.verb("session.stop", name, grace_ms=_calls.seconds(grace)))

    async def save(
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
        return await self._do(_calls.save(name, snapshot, note, keep_running, timeout, op), on_progress)

    async def resume(
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
        return await self._do(
            _calls.verb("session.resume", name, snapshot=snapshot, discard=discard or None, op=op),
            on_progress,
        )

    async def delete(self, name: str, *, keep_snapshots: bool = False, forget: bool = False) -> Deleted:
        """Removes a session with its files, and its snapshots unless they are to be kept.

        With ``forget`` also one that is on another engine than the one that answers: what is there stays
        there, and comes back as a session when that engine is used again.
        """
        return await self._do(_calls.delete(name, keep_snapshots, forget))

    async def connect(
        self, name: str, *, resume: Optional[bool] = None, on_progress: Optional[OnProgress] = None
    ) -> Session:
        """Resumes a session if it does not run, and notes that somebody came."""
        op = _calls.operation() if on_progress else None
        return await self._do(_calls.verb("session.connect", name, resume=resume, op=op), on_progress)

    async def pause(self, name: str) -> Session:
        """Freezes a session with its memory."""
        return await self._do(_calls.verb("session.pause", name))

    async def unpause(self, name: str) -> Session:
        """Thaws a paused session."""
        return await self._do(_calls.verb("session.unpause", name))

    async def notify(self, name: str, text: Optional[str] = None, *, state: Optional[str] = None) -> Session:
        """Says what a session's agent does: ``waiting``, ``working``, ``idle`` or ``done``."""
        return await self._do(_calls.verb("session.notify", name, state=state, text=text))

    async def wait(self, name: str, until: str, *, timeout: Optional[float] = None) -> bool:
        """Waits until a session is ``idle``, ``waiting``, ``done`` and so on; false when the time is up."""
        return await self._do(_calls.wait(name, until, timeout))

    async def fork(
        self,
        name: str,
        new_name: str,
        *,
        snapshot: Optional[str] = None,
        on_progress: Optional[OnProgress] = None,
    ) -> Session:
        """Starts a new session from a snapshot of this one, taken now if none is named."""
        op = _calls.operation() if on_progress else None
        return await self._do(
            _calls.verb("session.fork", name, new_name=new_name, snapshot=snapshot, op=op), on_progress
        )

    async def rename(self, name: str, new_name: str) -> Session:
        """Gives a session another name."""
        return await self._do(_calls.verb("session.rename", name, new_name=new_name))

    async def update(
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
        return await self._do(_calls.update(name, timeout, idle, idle_action, on_boot, keep, metadata))

    async def snapshots(self, name: Optional[str] = None) -> List[Snapshot]:
        """Snapshots, newest first: of one session, or all."""
        return await self._do(_calls.snapshots(name))

    async def delete_snapshots(self, *names: str) -> List[str]:
        """Deletes snapshots."""
        return await self._do(_calls.delete_snapshots(names))

    # Commands

    async def run(
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
        stream = await self.exec(
            session,
            cmd,
            env=env,
            cwd=cwd,
            user=user,
            stdin=input is not None,
            timeout=timeout,
            resume=resume,
        )
        async with stream:
            feeding = None
            if input is not None:
                data = input.encode("utf-8") if isinstance(input, str) else input
                feeding = asyncio.ensure_future(_feed(stream, data))
            try:
                return await collect(stream, on_stdout, on_stderr, check)
            finally:
                if feeding is not None:
                    feeding.cancel()

    async def exec(
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
    ) -> AsyncExecStream:
        """Starts a command and gives its bytes, in both directions."""
        return await self.open_stream(
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

    async def exec_start(
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
        return await self._do(
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

    async def exec_follow(
        self, session: str, id: str, *, stdout_from: int = 0, stderr_from: int = 0
    ) -> AsyncExecStream:
        """The output of a command that runs already, as far as it is kept, and on."""
        return await self.open_stream(
            opening(session, follow=id, stdout_from=stdout_from, stderr_from=stderr_from)
        )

    async def exec_list(self, session: Optional[str] = None) -> List[ExecInfo]:
        """Commands, oldest first."""
        return await self._do(_calls.execs(session))

    async def exec_kill(self, id: str, *, signal: Optional[int] = None) -> ExecInfo:
        """Signals a command; TERM, then KILL, if none is named."""
        return await self._do(_calls.exec_kill(id, signal))

    async def exec_wait(self, id: str, *, timeout: Optional[float] = None) -> ExecInfo:
        """Waits for a command's end, or so many seconds."""
        return await self._do(_calls.exec_wait(id, timeout))

    async def attach(
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
    ) -> AsyncExecStream:
        """Attaches to a terminal of a session, which is opened if it is not there; closing the stream
        detaches.

        ``agent`` is ``usual``, ``resume`` or ``fresh``, and starts the session's agent in place of a command.
        """
        return await self.open_stream(
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

    async def terminals(self, session: Optional[str] = None) -> List[TerminalInfo]:
        """Terminals that are open."""
        return await self._do(_calls.terminals(session))

    async def terminal_peek(self, session: str, terminal: str = "main", *, scrollback: int = 0) -> Screen:
        """The lines that a terminal shows, with its cursor, size and title."""
        return await self._do(_calls.terminal_peek(session, terminal, scrollback))

    async def terminal_close(self, session: str, terminal: str = "main") -> None:
        """Ends what runs on a terminal."""
        await self._do(_calls.terminal_close(session, terminal))

    async def open_stream(self, first: Json) -> AsyncExecStream:
        """A raw stream with this opening, under this client's name."""
        return await AsyncExecStream.open(self.place, Exchange({"client": self.name, **first}), self.timeout)

    # Files

    async def read_file(self, session: str, path: Path, *, resume: Optional[bool] = None) -> bytes:
        """The whole of a file."""
        data, more = await self._do(_calls.file_read(session, path, resume))
        if not more:
            return data
        # One copy sees one state of the file, where pages could be of several.
        async with await self.open_stream(copy_out(session, path, resume)) as stream:
            return unpack(b"".join([chunk async for _, chunk in stream]), path)

    async def write_file(
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
            return await self._do(_calls.file_write(session, path, content, mode, create_dirs, resume))
        # An empty one first: it makes the directories, keeps or sets the mode, and tells where links lead.
        made = await self._do(_calls.file_write(session, path, b"", mode, create_dirs, resume))
        mode = await self._mode(session, made.path, resume) if mode is None else mode
        async with await self.open_stream(copy_in(session, made.path, resume)) as stream:
            await stream.write(pack(stream.copy, content, mode))
            await stream.end_input()
            finished(await stream.wait())
        return WriteInfo(made.path, len(content))

    async def list_files(
        self, session: str, path: Optional[Path] = None, *, resume: Optional[bool] = None
    ) -> Directory:
        """What is in a directory; where commands run, if none is named."""
        return await self._do(_calls.file_list(session, path, resume))

    async def _mode(self, session: str, path: str, resume: Optional[bool]) -> int:
        directory, name = os.path.split(path)
        listed = await self.list_files(session, directory, resume=resume)
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
    ) -> AsyncEventStream:
        """Events as they come; with ``since``, first those after that number that are kept.

        It is subscribed by ``async with`` or the first ``await`` on it: nothing that happens afterwards is
        missed. A daemon that goes away is waited for, ``reconnect`` seconds long (None for ever), and events
        go on where they were.
        """
        return AsyncEventStream(self.place, self.name, since, session, kinds, reconnect, self.timeout)

    async def history(
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
            pages.add(await self._do(_calls.events(pages.since, session, kinds, limit)))
        return pages.events

    # Connections

    async def close(self) -> None:
        """Closes the connection. The client may be used again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            # The transport closes its socket in the loop's next round.
            await asyncio.sleep(0)

    async def _do(self, call: Call[T], on_progress: Optional[OnProgress] = None) -> T:
        op = call.params.get("op")
        if on_progress is not None and op is not None:
            self._watched[op] = on_progress
        try:
            retries = Retries(call.repeatable, self.timeout)
            while True:
                connection = await self._connected()
                try:
                    return call.read(await connection.call(call.method, call.params, self.timeout))
                except (ConnectionLostError, ShuttingDownError) as error:
                    if not retries.may_ask(error):
                        raise
                    if self._connection is connection:
                        # Others may wait on it for what was begun.
                        self._connection = None
                await asyncio.sleep(retries.pause)
        finally:
            self._watched.pop(op or "", None)

    async def _connected(self) -> AsyncConnection:
        loop = asyncio.get_running_loop()
        connection = self._connection
        if connection is not None and connection.loop is loop and not connection.ended:
            return connection
        connecting = self._connecting
        if connecting is None or connecting.done() or connecting.get_loop() is not loop:
            connecting = loop.create_task(
                AsyncConnection.open(self.place, self.name, self._take, self.timeout)
            )
            self._connecting = connecting
        # All who wait share one attempt, which goes on when one of them is cancelled.
        self._connection = await asyncio.shield(connecting)
        return self._connection

    async def _take(self, message: Optional[Json]) -> None:
        params = message.get("params") if message else None
        if message is None or not isinstance(params, dict):
            return
        for op, told in list(self._watched.items()):
            made = progress(message, op)
            if made is not None:
                told(made)


async def collect(
    stream: AsyncExecStream, on_stdout: Optional[OnText], on_stderr: Optional[OnText], check: bool
) -> CommandResult:
    """Reads a command to its end. What a callback gives is awaited, if it can be."""
    collector = Collector(on_stdout, on_stderr)

    async def tell(told: Optional[OnText], text: str) -> None:
        if told and text:
            waits: Any = told(text)
            if inspect.isawaitable(waits):
                await waits

    async for name, data in stream:
        await tell(*collector.add(name, data))
    for told, text in collector.end():
        await tell(told, text)
    return collector.result(await stream.wait(), stream.id, stream.lost_bytes, check)


async def _feed(stream: AsyncExecStream, data: bytes) -> None:
    try:
        await stream.write(data)
        await stream.end_input()
    except ConnectionLostError:
        # Who reads hears of it, with more to say.
        pass
