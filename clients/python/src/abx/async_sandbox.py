"""The same as ``sandbox``, on asyncio."""

from __future__ import annotations

import inspect
from typing import (
    Any,
    AsyncIterator,
    Callable,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Union,
    overload,
)
from weakref import WeakValueDictionary

from ._async_stream import AsyncExecStream
from ._calls import Path
from ._closing import AsyncClosing
from ._exchange import Chunk
from .async_client import AsyncClient, OnText, collect
from .errors import SessionNotFoundError
from .info import SessionInfo
from .models import (
    CommandResult,
    Deleted,
    Directory,
    ExecInfo,
    Progress,
    PtySize,
    Saved,
    Session,
    WriteInfo,
)
from .sandbox import Data, whole

#: A function, or a coroutine function.
OnBytes = Callable[[bytes], Any]


class AsyncCommandHandle:
    """A command that runs in the background."""

    def __init__(
        self, client: AsyncClient, session: str, id: str, stream: Optional[AsyncExecStream] = None
    ) -> None:
        self._client = client
        self._session = session
        self._stream = stream
        #: The command's id, as in ``abx exec list``.
        self.id = id

    async def wait(
        self,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        *,
        check: bool = False,
    ) -> CommandResult:
        """Waits for the end, and gives all output that is kept."""
        async with await self._opened() as stream:
            return await collect(stream, on_stdout, on_stderr, check)

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        async for chunk in await self._opened():
            yield chunk

    async def send_stdin(self, data: Union[str, bytes]) -> None:
        """Sends input to a command that was started with ``stdin=True``."""
        await self._fed().write(data.encode("utf-8") if isinstance(data, str) else data)

    async def close_stdin(self) -> None:
        """Ends the input."""
        await self._fed().end_input()

    async def kill(self, signal: Optional[int] = None) -> bool:
        """Ends the command and all that it started, or signals it."""
        return (await self._client.exec_kill(self.id, signal=signal)).id == self.id

    async def info(self, timeout: float = 0.0) -> ExecInfo:
        """How it stands, once it has ended or after so many seconds."""
        return await self._client.exec_wait(self.id, timeout=timeout)

    def disconnect(self) -> None:
        """Stops reading. A command without input goes on, one that is fed ends."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    async def _opened(self) -> AsyncExecStream:
        if self._stream is None:
            self._stream = await self._client.exec_follow(self._session, self.id)
        return self._stream

    def _fed(self) -> AsyncExecStream:
        if self._stream is None:
            raise ValueError("the command was not started with stdin=True")
        return self._stream


class AsyncCommands:
    """Commands of a sandbox. A list is program and arguments, text a script of the sandbox's shell."""

    def __init__(self, client: AsyncClient, session: Callable[[], str]) -> None:
        self._client = client
        self._session = session

    @overload
    async def run(
        self,
        cmd: Union[str, Sequence[str]],
        background: Literal[False] = ...,
        envs: Optional[Mapping[str, str]] = ...,
        user: Optional[str] = ...,
        cwd: Optional[str] = ...,
        on_stdout: Optional[OnText] = ...,
        on_stderr: Optional[OnText] = ...,
        stdin: Union[str, bytes, bool, None] = ...,
        timeout: Optional[float] = ...,
        check: bool = ...,
        *,
        resume: Optional[bool] = ...,
    ) -> CommandResult: ...

    @overload
    async def run(
        self,
        cmd: Union[str, Sequence[str]],
        background: Literal[True],
        envs: Optional[Mapping[str, str]] = ...,
        user: Optional[str] = ...,
        cwd: Optional[str] = ...,
        on_stdout: Optional[OnText] = ...,
        on_stderr: Optional[OnText] = ...,
        stdin: Union[str, bytes, bool, None] = ...,
        timeout: Optional[float] = ...,
        check: bool = ...,
        *,
        resume: Optional[bool] = ...,
    ) -> AsyncCommandHandle: ...

    @overload
    async def run(
        self,
        cmd: Union[str, Sequence[str]],
        background: bool,
        envs: Optional[Mapping[str, str]] = ...,
        user: Optional[str] = ...,
        cwd: Optional[str] = ...,
        on_stdout: Optional[OnText] = ...,
        on_stderr: Optional[OnText] = ...,
        stdin: Union[str, bytes, bool, None] = ...,
        timeout: Optional[float] = ...,
        check: bool = ...,
        *,
        resume: Optional[bool] = ...,
    ) -> Union[CommandResult, AsyncCommandHandle]: ...

    async def run(
        self,
        cmd: Union[str, Sequence[str]],
        background: bool = False,
        envs: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        stdin: Union[str, bytes, bool, None] = None,
        timeout: Optional[float] = None,
        check: bool = False,
        *,
        resume: Optional[bool] = None,
    ) -> Union[CommandResult, AsyncCommandHandle]:
        """Runs a command to its end, or starts it with ``background=True``.

        ``stdin`` is its input; True, in the background, for input that is sent later. ``timeout`` is in
        seconds; the code is then 124. Raises :class:`CommandExitError` with ``check``, where it ends with
        another code than 0. A sandbox that does not run is resumed, unless ``resume`` is False.
        """
        session = self._session()
        if background:
            return await self._start(session, cmd, envs, user, cwd, stdin, timeout, resume)
        return await self._client.run(
            session,
            cmd,
            env=envs,
            cwd=cwd,
            user=user,
            input=None if isinstance(stdin, bool) else stdin,
            timeout=timeout,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            check=check,
            resume=resume,
        )

    async def list(self) -> List[ExecInfo]:
        """Commands that run now."""
        return [each for each in await self._client.exec_list(self._session()) if each.status == "running"]

    def connect(self, id: str) -> AsyncCommandHandle:
        """A command that runs already."""
        return AsyncCommandHandle(self._client, self._session(), id)

    async def kill(self, id: str, signal: Optional[int] = None) -> bool:
        """Ends a command and all that it started, or signals it."""
        return await self.connect(id).kill(signal)

    async def _start(
        self,
        session: str,
        cmd: Union[str, Sequence[str]],
        envs: Optional[Mapping[str, str]],
        user: Optional[str],
        cwd: Optional[str],
        stdin: Union[str, bytes, bool, None],
        timeout: Optional[float],
        resume: Optional[bool],
    ) -> AsyncCommandHandle:
        if stdin is None or stdin is False:
            started = await self._client.exec_start(
                session, cmd, env=envs, cwd=cwd, user=user, timeout=timeout, resume=resume
            )
            return AsyncCommandHandle(self._client, session, started.id)
        stream = await self._client.exec(
            session, cmd, env=envs, cwd=cwd, user=user, stdin=True, timeout=timeout, resume=resume
        )
        handle = AsyncCommandHandle(self._client, session, stream.id, stream)
        if not isinstance(stdin, bool):
            await handle.send_stdin(stdin)
            await handle.close_stdin()
        return handle


class AsyncFiles:
    """Files of a sandbox. Relative paths count from where commands run.

    One that does not run is resumed first; with ``resume=False`` its files are read and written as they lie.
    """

    def __init__(self, client: AsyncClient, session: Callable[[], str]) -> None:
        self._client = client
        self._session = session

    @overload
    async def read(
        self, path: Path, format: Literal["text"] = ..., *, resume: Optional[bool] = ...
    ) -> str: ...

    @overload
    async def read(self, path: Path, format: Literal["bytes"], *, resume: Optional[bool] = ...) -> bytes: ...

    async def read(
        self, path: Path, format: str = "text", *, resume: Optional[bool] = None
    ) -> Union[str, bytes]:
        """A whole file, as text or with ``format="bytes"``.

        Raises :class:`SandboxFileNotFoundError`, which is a FileNotFoundError.
        """
        data = await self._client.read_file(self._session(), path, resume=resume)
        return data if format == "bytes" else data.decode("utf-8", "replace")

    async def write(
        self,
        path: Path,
        data: Data,
        *,
        mode: Optional[int] = None,
        create_dirs: bool = True,
        resume: Optional[bool] = None,
    ) -> WriteInfo:
        """Puts a file in place; directories above it are made."""
        return await self._client.write_file(
            self._session(), path, whole(data), mode=mode, create_dirs=create_dirs, resume=resume
        )

    async def list(self, path: Optional[Path] = None, *, resume: Optional[bool] = None) -> Directory:
        """What is in a directory."""
        return await self._client.list_files(self._session(), path, resume=resume)

    async def exists(self, path: Path) -> bool:
        """Whether there is something at a path."""
        return (await self._run(["test", "-e", str(path)], check=False)).ok

    async def make_dir(self, path: Path) -> None:
        """Makes a directory and those above it."""
        await self._run(["mkdir", "-p", "--", str(path)])

    async def remove(self, path: Path) -> None:
        """Removes a file, or a directory with all that is in it."""
        await self._run(["rm", "-rf", "--", str(path)])

    async def rename(self, old: Path, new: Path) -> None:
        """Moves a file or directory."""
        await self._run(["mv", "--", str(old), str(new)])

    async def _run(self, cmd: Sequence[str], check: bool = True) -> CommandResult:
        return await self._client.run(self._session(), cmd, check=check)


class AsyncPtyHandle(AsyncClosing):
    """A program on a terminal."""

    def __init__(self, client: AsyncClient, stream: AsyncExecStream, on_data: Optional[OnBytes]) -> None:
        self._client = client
        self._stream = stream
        self._on_data = on_data
        #: The command's id.
        self.id = stream.id

    async def read(self) -> Optional[bytes]:
        """The next bytes of the screen; None at the end. May be cancelled: nothing is lost."""
        chunk = await self._stream.read()
        return None if chunk is None else chunk[1]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for _, data in self._stream:
            yield data

    async def send(self, data: Union[str, bytes]) -> None:
        """Types."""
        await self._stream.write(data.encode("utf-8") if isinstance(data, str) else data)

    send_stdin = send

    async def resize(self, rows: int, cols: int) -> None:
        """Tells the terminal's new size."""
        await self._stream.resize(rows, cols)

    async def wait(self, on_pty: Optional[OnBytes] = None) -> int:
        """Reads to the end, and gives the code."""
        told = on_pty or self._on_data
        async for data in self:
            waits = told(data) if told is not None else None
            if inspect.isawaitable(waits):
                await waits
        return (await self._stream.wait())[0]

    async def kill(self) -> bool:
        """Ends the program."""
        return (await self._client.exec_kill(self.id)).id == self.id

    def close(self) -> None:
        """Leaves. A named terminal stays, any other program ends."""
        self._stream.close()

    disconnect = close


class AsyncPty:
    """Terminals of a sandbox."""

    def __init__(self, client: AsyncClient, session: Callable[[], str]) -> None:
        self._client = client
        self._session = session
        self._open: "WeakValueDictionary[str, AsyncPtyHandle]" = WeakValueDictionary()

    async def create(
        self,
        size: PtySize = PtySize(),
        on_data: Optional[OnBytes] = None,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        envs: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
        cmd: Union[str, Sequence[str]] = (),
        *,
        resume: Optional[bool] = None,
    ) -> AsyncPtyHandle:
        """Starts a program on a terminal of its own: the shell, if none is named. It ends when the handle is
        closed.
        """
        words: Sequence[str] = ["/bin/sh", "-l"] if not cmd else [cmd] if isinstance(cmd, str) else cmd
        stream = await self._client.exec(
            self._session(),
            words,
            env={"TERM": "xterm-256color", **(envs or {})},
            cwd=cwd,
            user=user,
            stdin=True,
            tty=size,
            timeout=timeout,
            resume=resume,
        )
        return self._kept(AsyncPtyHandle(self._client, stream, on_data))

    async def attach(
        self,
        terminal: str = "main",
        size: PtySize = PtySize(),
        on_data: Optional[OnBytes] = None,
        cmd: Sequence[str] = (),
        read_only: bool = False,
        scrollback: int = 0,
        agent: Optional[str] = None,
        *,
        resume: Optional[bool] = None,
    ) -> AsyncPtyHandle:
        """Attaches to a named terminal, as ``abx attach`` does: it is opened if it is not there, and stays
        when left.
        """
        stream = await self._client.attach(
            self._session(),
            cmd,
            terminal=terminal,
            size=size,
            env={"TERM": "xterm-256color"},
            read_only=read_only,
            scrollback=scrollback,
            agent=agent,
            resume=resume,
        )
        return self._kept(AsyncPtyHandle(self._client, stream, on_data))

    async def send_stdin(self, id: str, data: Union[str, bytes]) -> None:
        """Types on a terminal that was opened here."""
        await self._open[id].send(data)

    async def resize(self, id: str, size: PtySize) -> None:
        """Tells the new size of a terminal that was opened here."""
        await self._open[id].resize(size.rows, size.cols)

    async def kill(self, id: str) -> bool:
        """Ends the program on a terminal."""
        self._open.pop(id, None)
        return (await self._client.exec_kill(id)).id == id

    def _kept(self, handle: AsyncPtyHandle) -> AsyncPtyHandle:
        self._open[handle.id] = handle
        return handle


class AsyncSandbox(AsyncClosing):
    """A session to work in. It stays when this object goes: only :meth:`kill` removes it."""

    def __init__(self, client: AsyncClient, session: Session) -> None:
        self._client = client
        self._row = session
        self.commands = AsyncCommands(client, self._key)
        self.files = AsyncFiles(client, self._key)
        self.pty = AsyncPty(client, self._key)

    @property
    def id(self) -> str:
        """The sandbox's id: the container's. It changes where a container is made anew from a snapshot."""
        return self._row.sandbox_id or ""

    @property
    def sandbox_id(self) -> str:
        """As :attr:`id`."""
        return self.id

    @property
    def name(self) -> str:
        """The session's name."""
        return self._row.name

    @property
    def session(self) -> Session:
        """The session as it was when it was last asked for."""
        return self._row

    @property
    def client(self) -> AsyncClient:
        """What carries the calls."""
        return self._client

    async def get_info(self) -> SessionInfo:
        """The session as it is now."""
        return SessionInfo.from_session(await self.refresh())

    async def refresh(self) -> Session:
        """Asks for the session as it is now."""
        self._row = await self._client.get(self._key())
        return self._row

    async def is_running(self) -> bool:
        """Whether it runs now."""
        try:
            return (await self.refresh()).status == "running"
        except SessionNotFoundError:
            return False

    async def set_timeout(self, timeout: float) -> None:
        """Has it stopped so many seconds from now; 0 is never."""
        self._row = await self._client.update(self._key(), timeout=timeout)

    async def stop(self) -> None:
        """Stops it; its files stay."""
        self._row = await self._client.stop(self._key())

    async def pause(self) -> None:
        """Freezes it with its memory."""
        self._row = await self._client.pause(self._key())

    async def resume(self, snapshot: Optional[str] = None, *, discard: bool = False) -> None:
        """Brings it back; ``snapshot`` goes back to that one, after saving what it replaces unless that is to
        be discarded. ``session.warnings`` says in what it is not as it was saved.
        """
        self._row = await self._client.resume(self._key(), snapshot=snapshot, discard=discard)

    async def save(
        self,
        snapshot: Optional[str] = None,
        note: Optional[str] = None,
        keep_running: bool = False,
        on_progress: Optional[Callable[[Progress], None]] = None,
        *,
        timeout: Optional[float] = None,
    ) -> Saved:
        """Takes a snapshot, for which the engine may take ``timeout`` seconds."""
        saved = await self._client.save(
            self._key(),
            snapshot=snapshot,
            note=note,
            keep_running=keep_running,
            timeout=timeout,
            on_progress=on_progress,
        )
        self._row = saved.session
        return saved

    async def fork(self, new_name: str, snapshot: Optional[str] = None) -> "AsyncSandbox":
        """Starts a new session with these files."""
        return AsyncSandbox(self._client, await self._client.fork(self._key(), new_name, snapshot=snapshot))

    async def kill(self, keep_snapshots: bool = False, *, forget: bool = False) -> bool:
        """Removes the session, its files and snapshots; False where it is gone already. With ``forget`` also
        one whose engine is another than the one that answers.
        """
        try:
            gone: Deleted = await self._client.delete(
                self._key(), keep_snapshots=keep_snapshots, forget=forget
            )
        except SessionNotFoundError:
            return False
        return bool(gone.name)

    async def close(self) -> None:
        """Lets go of the daemon. The session stays: who opens it by name wants it there the next time."""
        await self._client.close()

    def __repr__(self) -> str:
        return f"<AsyncSandbox {self._row.name!r} {self._row.status}>"

    def _key(self) -> str:
        return self._row.name
