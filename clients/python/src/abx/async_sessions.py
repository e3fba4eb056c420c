"""The same as ``sessions``, on asyncio."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional, Sequence

from . import _calls, _paths
from ._calls import MountLike, Path, PortLike
from ._closing import AsyncClosing
from ._output import OnProgress
from .async_client import AsyncClient
from .async_sandbox import AsyncSandbox
from .errors import AbxError, SessionAlreadyExistsError, SessionNotFoundError
from .info import SessionInfo
from .models import Limits, Session
from .sessions import DEFAULT_TIMEOUT, Imported, described, namespace, read_files, together


class AsyncLocalSessionStore:
    """Descriptions of sandboxes by name, kept by the daemon.

    Each ``base_dir`` has names of its own. Without one it is the daemon's table: sessions that the daemon
    runs are in it too, and can be loaded and listed, but are deleted only by :meth:`AsyncSessionManager.stop`
    with ``kill=True``.
    """

    def __init__(self, base_dir: Optional[Path] = None, *, client: Optional[AsyncClient] = None) -> None:
        self.client = client or AsyncClient()
        self.base_dir = (
            _paths.default_store_dir() if base_dir is None else os.path.expanduser(os.fspath(base_dir))
        )
        self.namespace = namespace(base_dir)

    async def save(self, info: SessionInfo) -> None:
        """Keeps a description, in the place of one that is there.

        Of a session that the daemon runs, only metadata is taken over.
        """
        try:
            await self.client._do(_calls.store_save(info, self.namespace))
        except SessionAlreadyExistsError:
            if self.namespace is not None:
                raise
            there = await self.client.get(info.name)
            changes: Dict[str, Optional[str]] = {
                key: None for key in there.metadata if key not in info.metadata
            }
            changes.update(info.metadata)
            await self.client.update(info.name, metadata=changes)

    async def load(self, name: str) -> Optional[SessionInfo]:
        """A description, or None."""
        found = await self.client._do(_calls.store_load(name, self.namespace))
        if found is not None or self.namespace is not None:
            return found
        try:
            session = await self.client.get(name)
        except SessionNotFoundError:
            return None
        return SessionInfo.from_session(session) if described(session) else None

    async def list_all(self) -> List[SessionInfo]:
        """All descriptions, newest first; without what only :meth:`load` gives, such as tokens."""
        rows = await self.client._do(_calls.store_list(self.namespace))
        return together(rows, [] if self.namespace is not None else await self.client.list())

    async def delete(self, name: str) -> bool:
        """Deletes a description; False where there is none. A session that the daemon runs is left alone."""
        return await self.client._do(_calls.store_delete(name, self.namespace))

    async def exists(self, name: str) -> bool:
        """Whether there is a description."""
        return await self.load(name) is not None

    async def import_files(self) -> Imported:
        """Takes over the JSON files that the older SDK left in ``base_dir``. They stay, and what is here
        already wins.
        """
        found, problems = read_files(self.base_dir)
        names = []
        for info in found:
            try:
                if await self.load(info.name) is None:
                    await self.save(info)
                    names.append(info.name)
            except AbxError as error:
                problems[info.name] = error.message
        return Imported(names, problems)


class AsyncSessionManager(AsyncClosing):
    """Starts, finds and ends sessions by name.

    With a ``base_dir``, or a ``store`` that has one, the manager knows the sessions of that store alone.
    Names of sessions that run are unique all the same: ``abx attach`` has to know which is meant.
    """

    def __init__(
        self,
        store: Optional[AsyncLocalSessionStore] = None,
        *,
        base_dir: Optional[Path] = None,
        client: Optional[AsyncClient] = None,
        template: str = "base",
        timeout: Optional[float] = DEFAULT_TIMEOUT,
    ) -> None:
        self.client = client or (store.client if store is not None else AsyncClient())
        self.store = store or AsyncLocalSessionStore(base_dir, client=self.client)
        self.template = template
        self.timeout = timeout

    async def start(
        self,
        name: str,
        template: Optional[str] = None,
        timeout: Optional[float] = None,
        metadata: Optional[Mapping[str, str]] = None,
        envs: Optional[Mapping[str, str]] = None,
        *,
        agent: Optional[str] = None,
        image: Optional[str] = None,
        idle: Optional[float] = None,
        idle_action: Optional[str] = None,
        on_boot: Optional[str] = None,
        keep: Optional[int] = None,
        workspace: Optional[MountLike] = None,
        mounts: Sequence[MountLike] = (),
        ports: Sequence[PortLike] = (),
        limits: Optional[Limits] = None,
        network: Optional[str] = None,
        profile: Optional[str] = None,
        on_progress: Optional[OnProgress] = None,
    ) -> AsyncSandbox:
        """Starts a session. ``timeout`` is in seconds, 0 for never, 600 if not told otherwise: it is stopped
        then, and keeps its files. What else it takes is as :meth:`AsyncClient.start` has it.

        Raises :class:`SessionAlreadyExistsError`.
        """
        session = await self.client.start(
            name,
            template=template or self.template,
            timeout=self.timeout if timeout is None else timeout,
            metadata=metadata,
            env=envs,
            agent=agent,
            image=image,
            idle=idle,
            idle_action=idle_action,
            on_boot=on_boot,
            keep=keep,
            workspace=workspace,
            mounts=mounts,
            ports=ports,
            limits=limits,
            network=network,
            profile=profile,
            on_progress=on_progress,
        )
        await self._note(session)
        return AsyncSandbox(self.client, session)

    async def connect(
        self,
        name: str,
        timeout: Optional[float] = None,
        *,
        resume: Optional[bool] = None,
        on_progress: Optional[OnProgress] = None,
    ) -> AsyncSandbox:
        """A session that is there, resumed if it does not run.

        Raises :class:`SessionNotFoundError`, and with ``resume=False`` :class:`WrongStateError` where it does
        not run.
        """
        await self._known(name)
        session = await self.client.connect(name, resume=resume, on_progress=on_progress)
        if timeout is not None:
            session = await self.client.update(name, timeout=timeout)
        await self._note(session)
        return AsyncSandbox(self.client, session)

    async def list_sessions(self) -> List[SessionInfo]:
        """Sessions, newest first."""
        if self.store.namespace is None:
            return await self.store.list_all()
        running = {each.name: each for each in await self.client.list() if described(each)}
        rows = await self.store.list_all()
        return [SessionInfo.from_session(running[row.name]) if row.name in running else row for row in rows]

    async def list(self) -> List[SessionInfo]:
        """As :meth:`list_sessions`."""
        return await self.list_sessions()

    async def get_info(self, name: str) -> SessionInfo:
        """A session as it is now.

        Raises :class:`SessionNotFoundError`.
        """
        row = await self._known(name)
        try:
            session = await self.client.get(name)
        except SessionNotFoundError:
            if row is None:
                raise
            return row
        return SessionInfo.from_session(session) if described(session) or row is None else row

    async def stop(self, name: str, kill: bool = False) -> None:
        """Stops a session, which keeps its files; with ``kill`` removes it, its files and snapshots.

        Raises :class:`SessionNotFoundError`.
        """
        row = await self._known(name)
        try:
            if kill:
                await self.client.delete(name)
            else:
                await self._note(await self.client.stop(name))
        except SessionNotFoundError:
            # A store may know a name whose sandbox is gone.
            if row is None or not kill:
                raise
        if kill and self.store.namespace is not None:
            await self.store.delete(name)

    async def close(self) -> None:
        """Closes the connection. The manager may be used again."""
        await self.client.close()

    async def _known(self, name: str) -> Optional[SessionInfo]:
        row = await self.store.load(name)
        if row is None and self.store.namespace is not None:
            raise SessionNotFoundError(f"no session named '{name}' in {self.store.base_dir}")
        return row

    async def _note(self, session: Session) -> None:
        if self.store.namespace is not None:
            await self.store.save(SessionInfo.from_session(session))
