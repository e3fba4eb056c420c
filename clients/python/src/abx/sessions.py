"""What the older SDK had: a manager of named sessions, and a store of descriptions of sandboxes."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from . import _calls, _paths
from ._calls import MountLike, Path, PortLike
from ._closing import Closing
from ._output import OnProgress
from .client import Client
from .errors import AbxError, SessionAlreadyExistsError, SessionNotFoundError
from .info import SessionInfo
from .models import Limits, Session
from .sandbox import Sandbox

#: How long a session runs if it is not told otherwise, in seconds. It is then stopped, and keeps its files.
DEFAULT_TIMEOUT = 600


def namespace(base_dir: Optional[Path]) -> Optional[str]:
    """The namespace of a directory; None for where the older SDK kept its sessions, which is the table
    itself.
    """
    if base_dir is None:
        return None
    path = os.path.realpath(os.path.expanduser(os.fspath(base_dir)))
    return None if path == _paths.default_store_dir() else path


def described(session: Session) -> bool:
    """Whether the daemon runs it, so that the session itself describes it best."""
    return session.engine != "external"


def together(rows: Sequence[SessionInfo], sessions: Sequence[Session]) -> List[SessionInfo]:
    """Rows of a store, and the sessions that the daemon runs, newest first."""
    everything = [*rows, *(SessionInfo.from_session(each) for each in sessions if described(each))]
    return sorted(everything, key=lambda info: info.created_at, reverse=True)


@dataclass(frozen=True)
class Imported:
    """What became of the files of an older store: the names that were taken over, and why a file was not."""

    names: Sequence[str]
    problems: Mapping[str, str]


def read_files(directory: str) -> Tuple[List[SessionInfo], Dict[str, str]]:
    """The sessions in the files of an older store, and why a file has none. Nothing is changed."""
    found: List[SessionInfo] = []
    problems: Dict[str, str] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*.json"))):
        try:
            with open(path, "rb") as file:
                found.append(SessionInfo.model_validate_json(file.read()))
        except (OSError, ValueError, TypeError) as error:
            problems[os.path.basename(path)] = str(error) or type(error).__name__
    return found, problems


class LocalSessionStore:
    """Descriptions of sandboxes by name, kept by the daemon.

    Each ``base_dir`` has names of its own. Without one it is the daemon's table: sessions that the daemon
    runs are in it too, and can be loaded and listed, but are deleted only by :meth:`SessionManager.stop` with
    ``kill=True``.
    """

    def __init__(self, base_dir: Optional[Path] = None, *, client: Optional[Client] = None) -> None:
        self.client = client or Client()
        self.base_dir = (
            _paths.default_store_dir() if base_dir is None else os.path.expanduser(os.fspath(base_dir))
        )
        self.namespace = namespace(base_dir)

    def save(self, info: SessionInfo) -> None:
        """Keeps a description, in the place of one that is there.

        Of a session that the daemon runs, only metadata is taken over.
        """
        try:
            self.client._do(_calls.store_save(info, self.namespace))
        except SessionAlreadyExistsError:
            if self.namespace is not None:
                raise
            there = self.client.get(info.name)
            changes: Dict[str, Optional[str]] = {
                key: None for key in there.metadata if key not in info.metadata
            }
            changes.update(info.metadata)
            self.client.update(info.name, metadata=changes)

    def load(self, name: str) -> Optional[SessionInfo]:
        """A description, or None."""
        found = self.client._do(_calls.store_load(name, self.namespace))
        if found is not None or self.namespace is not None:
            return found
        try:
            session = self.client.get(name)
        except SessionNotFoundError:
            return None
        return SessionInfo.from_session(session) if described(session) else None

    def list_all(self) -> List[SessionInfo]:
        """All descriptions, newest first; without what only :meth:`load` gives, such as tokens."""
        rows = self.client._do(_calls.store_list(self.namespace))
        return together(rows, [] if self.namespace is not None else self.client.list())

    def delete(self, name: str) -> bool:
        """Deletes a description; False where there is none. A session that the daemon runs is left alone."""
        return self.client._do(_calls.store_delete(name, self.namespace))

    def exists(self, name: str) -> bool:
        """Whether there is a description."""
        return self.load(name) is not None

    def import_files(self) -> Imported:
        """Takes over the JSON files that the older SDK left in ``base_dir``. They stay, and what is here
        already wins.
        """
        found, problems = read_files(self.base_dir)
        names = []
        for info in found:
            try:
                if self.load(info.name) is None:
                    self.save(info)
                    names.append(info.name)
            except AbxError as error:
                problems[info.name] = error.message
        return Imported(names, problems)


class SessionManager(Closing):
    """Starts, finds and ends sessions by name.

    With a ``base_dir``, or a ``store`` that has one, the manager knows the sessions of that store alone.
    Names of sessions that run are unique all the same: ``abx attach`` has to know which is meant.
    """

    def __init__(
        self,
        store: Optional[LocalSessionStore] = None,
        *,
        base_dir: Optional[Path] = None,
        client: Optional[Client] = None,
        template: str = "base",
        timeout: Optional[float] = DEFAULT_TIMEOUT,
    ) -> None:
        self.client = client or (store.client if store is not None else Client())
        self.store = store or LocalSessionStore(base_dir, client=self.client)
        self.template = template
        self.timeout = timeout

    def start(
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
    ) -> Sandbox:
        """Starts a session. ``timeout`` is in seconds, 0 for never, 600 if not told otherwise: it is stopped
        then, and keeps its files. What else it takes is as :meth:`Client.start` has it.

        Raises :class:`SessionAlreadyExistsError`.
        """
        session = self.client.start(
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
        self._note(session)
        return Sandbox(self.client, session)

    def connect(
        self,
        name: str,
        timeout: Optional[float] = None,
        *,
        resume: Optional[bool] = None,
        on_progress: Optional[OnProgress] = None,
    ) -> Sandbox:
        """A session that is there, resumed if it does not run.

        Raises :class:`SessionNotFoundError`, and with ``resume=False`` :class:`WrongStateError` where it does
        not run.
        """
        self._known(name)
        session = self.client.connect(name, resume=resume, on_progress=on_progress)
        if timeout is not None:
            session = self.client.update(name, timeout=timeout)
        self._note(session)
        return Sandbox(self.client, session)

    def list_sessions(self) -> List[SessionInfo]:
        """Sessions, newest first."""
        if self.store.namespace is None:
            return self.store.list_all()
        running = {each.name: each for each in self.client.list() if described(each)}
        rows = self.store.list_all()
        return [SessionInfo.from_session(running[row.name]) if row.name in running else row for row in rows]

    def list(self) -> List[SessionInfo]:
        """As :meth:`list_sessions`."""
        return self.list_sessions()

    def get_info(self, name: str) -> SessionInfo:
        """A session as it is now.

        Raises :class:`SessionNotFoundError`.
        """
        row = self._known(name)
        try:
            session = self.client.get(name)
        except SessionNotFoundError:
            if row is None:
                raise
            return row
        return SessionInfo.from_session(session) if described(session) or row is None else row

    def stop(self, name: str, kill: bool = False) -> None:
        """Stops a session, which keeps its files; with ``kill`` removes it, its files and snapshots.

        Raises :class:`SessionNotFoundError`.
        """
        row = self._known(name)
        try:
            if kill:
                self.client.delete(name)
            else:
                self._note(self.client.stop(name))
        except SessionNotFoundError:
            # A store may know a name whose sandbox is gone.
            if row is None or not kill:
                raise
        if kill and self.store.namespace is not None:
            self.store.delete(name)

    def close(self) -> None:
        """Closes the connections that are kept. The manager may be used again."""
        self.client.close()

    def _known(self, name: str) -> Optional[SessionInfo]:
        row = self.store.load(name)
        if row is None and self.store.namespace is not None:
            raise SessionNotFoundError(f"no session named '{name}' in {self.store.base_dir}")
        return row

    def _note(self, session: Session) -> None:
        if self.store.namespace is not None:
            self.store.save(SessionInfo.from_session(session))
