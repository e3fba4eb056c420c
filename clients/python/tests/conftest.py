"""A home per test, with its own daemon; containers and snapshots made from it go with it.

``ABX_PROGRAM`` names the program abx to test, else the one on PATH. ``ABX_TEST_IMAGE`` names the image of
sessions. With ``ABX_TEST_ENGINE=1`` tests that need a container engine fail where there is none; else they
are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable, Iterator, List, Optional, TypeVar

import pytest

from abx import Client, LocalSessionStore, SessionManager

T = TypeVar("T")

IMAGE = os.environ.get("ABX_TEST_IMAGE", "abx-test-busybox:1")

#: Methods of the daemon that no method of a client makes. The README says of each what there is instead.
LEFT_OUT = {
    "daemon.check",
    "daemon.restart",
    "daemon.shutdown",
    "event.unsubscribe",
    "exec.logs",
    "exec.run",
    "rpc.discover",
    "session.adopt",
    "session.import",
    "snapshot.diff",
    "snapshot.export",
    "snapshot.import",
    "snapshot.prune",
    "table.export",
    "table.import",
    "terminal.open",
    "terminal.resize",
    "terminal.unsubscribe",
    "terminal.write",
}

#: Parameters of the methods that a client calls, and fields of a stream's opening (``Open``), that no
#: argument gives, and why.
PARAMS_LEFT_OUT = {
    "Open.detach": "exec_start is for what goes on without its caller",
    "Open.hears": "on_progress of connect tells that a session is being resumed",
    "file.read.limit": "a file is read as a whole",
    "file.read.offset": "a file is read as a whole",
}

#: What the results of these methods have that no attribute gives, and why: a field, or a whole type.
FIELDS_LEFT_OUT = {
    "Done": "there is nothing in it",
    "Event.subscription": "each stream of events has a subscription to itself",
    "FileContent": "the bytes of the whole file are given",
    "HelloResult": "the protocol is looked at, and the rest is in DaemonInfo",
    "StoreDeleteResult": "whether it was there is given",
    "WaitResult": "whether it was reached is given",
}

#: Longest wait for anything, in seconds. What is waited for comes at once, unless the machine is very busy.
LIMIT = 60.0


def until(what: str, ask: Callable[[], Optional[T]]) -> T:
    """Waits until something is there."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        found = ask()
        if found is not None:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited in vain for {what}")


def program() -> str:
    """The program abx."""
    found = os.environ.get("ABX_PROGRAM") or shutil.which("abx")
    assert found, "these tests need abx on PATH, or in ABX_PROGRAM"
    return os.path.abspath(found)


class World:
    """A home of abx that belongs to one test."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        self.root = self.directory / "abx"
        self.program = program()

    def abx(self, *args: str) -> str:
        """Runs abx to its end and gives what it printed."""
        command = [self.program, *args]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT, text=True
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def client(self, *, autostart: bool = True) -> Client:
        """A new client."""
        return Client(program=self.program, autostart=autostart, timeout=LIMIT)

    def manager(self, base_dir: Optional[str] = None) -> SessionManager:
        """A new manager."""
        return SessionManager(LocalSessionStore(base_dir, client=self.client()))

    def engine(self) -> None:
        """Skips the test where there is no engine, or fails it where there must be one."""

        def known() -> Optional[str]:
            health = [str(engine["health"]) for engine in client.info().engines]
            return health[0] if health and health[0] != "checking" else None

        with self.client() as client:
            health = until("the engine to be looked at", known)
        if health != "ok":
            insists = any(os.environ.get(name) in ("1", "true") for name in ("CI", "ABX_TEST_ENGINE"))
            assert not insists, f"these tests need an engine, which is {health}"
            pytest.skip("no engine")

    def end(self) -> None:
        """Ends the daemon, and removes what the test left in the engine."""
        subprocess.run(
            [self.program, "daemon", "stop"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT,
        )
        root = os.path.realpath(self.root)
        for container in docker("ps", "-aq", "--filter", f"label=dev.abx.session.home={root}"):
            docker("rm", "-fv", container)
        for image in docker("images", "-q", "--filter", f"label=dev.abx.snapshot.home={root}"):
            docker("rmi", "-f", image)


def docker(*args: str) -> List[str]:
    """What docker prints, by words; nothing where it fails, or is not there."""
    if shutil.which("docker") is None:
        return []
    done = subprocess.run(
        ["docker", *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=LIMIT, text=True
    )
    return done.stdout.split()


def _world() -> Iterator[World]:
    kept = dict(os.environ)
    directory = tempfile.mkdtemp(prefix="abx-py-", dir="/tmp")
    try:
        world = World(directory)
        for name in ("ABX_SOCKET", "DOCKER_CONTEXT"):
            os.environ.pop(name, None)
        os.environ.update(HOME=directory, ABX_HOME=str(world.root))
        yield world
        world.end()
    finally:
        os.environ.clear()
        os.environ.update(kept)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def world() -> Iterator[World]:
    """A home whose daemon does not run yet."""
    yield from _world()


@pytest.fixture
def engine(world: World) -> World:
    """A home on a real engine."""
    world.engine()
    return world


@pytest.fixture
def manager(engine: World) -> SessionManager:
    """A manager of sessions on a real engine."""
    return engine.manager()
