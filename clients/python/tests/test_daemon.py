"""The daemon's life as a client sees it: started, missing, restarted, away; and events across all of it."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import stat
import threading
from pathlib import Path
from typing import Any, List, Optional

import pytest

from abx import (
    AsyncClient,
    Client,
    ConnectionLostError,
    DaemonUnreachableError,
    EngineUnavailableError,
    Event,
    EventStream,
    LocalSessionStore,
    ProtocolError,
    SessionInfo,
    SessionNotFoundError,
    errors,
)
from conftest import IMAGE, LEFT_OUT, LIMIT, World, docker, until


def save(client: Client, name: str) -> None:
    """Something that happens, and needs no engine."""
    LocalSessionStore(client=client).save(SessionInfo(name))


def names(events: List[Event]) -> List[str]:
    return [event.session or "" for event in events]


def kill(client: Client) -> None:
    """Kills the daemon, as a crash would."""
    pid = client.info().pid
    os.kill(pid, signal.SIGKILL)
    until("the daemon to be gone", lambda: None if is_alive(pid) else True)


def kill_under(client: Client, stream: Any) -> None:
    """The same, until also this stream's connection has ended, or another one is in its place.

    The first thread of a process is gone a moment before its sockets are, and what is sent meanwhile is lost.
    """
    made = stream._socket
    poll = select.poll()
    poll.register(made, select.POLLHUP)
    kill(client)
    until("the end of the connection", lambda: stream._socket is not made or bool(poll.poll(0)) or None)


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def test_the_daemon_is_started_when_it_is_needed(world: World) -> None:
    with pytest.raises(DaemonUnreachableError, match="autostart is off") as refused:
        world.client(autostart=False).info()
    assert isinstance(refused.value, ConnectionError) and "abx daemon start" in str(refused.value)
    client = world.client()
    assert client.info().home == os.path.realpath(world.root)
    assert world.client(autostart=False).list() == []
    other = Client(home=world.directory / "other", program=world.program)
    assert other.info().home == os.path.realpath(world.directory / "other")
    other.call("daemon.shutdown")


def test_a_program_that_is_missing_is_said_with_what_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DaemonUnreachableError) as refused:
        Client(program="/no/such/abx").info()
    assert "/no/such/abx" in str(refused.value) and "install abx" in str(refused.value)
    monkeypatch.setenv("PATH", str(world.directory))
    with pytest.raises(DaemonUnreachableError, match="not on PATH"):
        Client().info()


def test_a_daemon_that_does_not_start_says_why(world: World) -> None:
    world.root.mkdir()
    (world.root / "config.toml").write_text("not toml")
    with pytest.raises(DaemonUnreachableError) as refused:
        world.client().info()
    assert "config.toml" in str(refused.value) and "abx doctor" in str(refused.value)


def test_something_else_on_the_socket_is_not_taken_for_a_daemon(world: World, tmp_path: Path) -> None:
    import socket

    path = str(world.directory / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            with listener.accept()[0] as made:
                made.recv(1000)
                made.sendall(b"220 mail\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(ProtocolError, match="220 mail"):
            Client(socket=path, autostart=False).info()


def test_a_call_after_a_restart_finds_the_new_daemon(world: World) -> None:
    client = world.client()
    # A process may go on as the next daemon.
    begun = {client.info().started_at}
    world.abx("daemon", "restart")
    begun.add(client.info().started_at)
    kill(client)
    save(client, "a")
    begun.add(client.info().started_at)
    assert len(begun) == 3


def test_a_call_that_breaks_off_says_that_it_may_have_been_done(engine: World) -> None:
    client = engine.client()
    client.start("a", image=IMAGE)
    failures: List[BaseException] = []

    def ask() -> None:
        try:
            client.call("exec.run", {"session": "a", "cmd": ["sleep", "1000"]})
        except ConnectionLostError as error:
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    other = engine.client()
    until(
        "the command to run", lambda: any(each.status == "running" for each in other.exec_list("a")) or None
    )
    kill(other)
    thread.join(LIMIT)
    assert len(failures) == 1 and "may have been done" in str(failures[0])


def test_a_command_is_followed_through_a_restart(engine: World) -> None:
    client = engine.client()
    client.start("a", image=IMAGE)
    script = "n=0; while [ ! -e /tmp/stop ]; do echo $n; n=$((n+1)); sleep 0.02; done; echo last $n; exit 6"
    started = threading.Event()
    results: List[Any] = []
    thread = threading.Thread(
        target=lambda: results.append(client.run("a", script, on_stdout=lambda text: started.set()))
    )
    thread.start()
    assert started.wait(LIMIT)
    kill(engine.client())
    engine.client().write_file("a", "/tmp/stop", "")
    thread.join(LIMIT)
    [result] = results
    assert (result.exit_code, result.lost_bytes) == (6, 0)
    *numbers, last = result.stdout.splitlines()
    assert numbers == [str(number) for number in range(len(numbers))], "nothing is missing and nothing twice"
    assert last == f"last {len(numbers)}"


def test_an_asynchronous_command_is_followed_through_a_restart(engine: World) -> None:
    engine.client().start("a", image=IMAGE)

    async def work() -> None:
        client = AsyncClient(program=engine.program)
        started = asyncio.Event()
        script = "echo begun; while [ ! -e /tmp/stop ]; do sleep 0.02; done; echo ended; exit 6"
        running = asyncio.ensure_future(client.run("a", script, on_stdout=lambda text: started.set()))
        await started.wait()
        await asyncio.get_running_loop().run_in_executor(None, kill, engine.client())
        await client.write_file("a", "/tmp/stop", "")
        result = await running
        assert (result.stdout, result.exit_code) == ("begun\nended\n", 6)
        await client.close()

    asyncio.run(asyncio.wait_for(work(), LIMIT))


def test_what_is_typed_after_a_restart_arrives_though_nobody_read_meanwhile(engine: World) -> None:
    manager = engine.manager()
    sandbox = manager.start("shell", image=IMAGE)
    for pty in (sandbox.pty.create(), sandbox.pty.attach("main")):
        pty.send("echo ready-$((6 * 7))\n")
        seen = b""
        while b"ready-42" not in seen:
            seen += pty.read(timeout=LIMIT) or b""
        kill_under(engine.client(), pty._stream)
        pty.send("echo again-$((6 * 7)); exit 7\n")
        shown: List[bytes] = []
        assert pty.wait(shown.append) == 7
        assert b"again-42" in b"".join(shown)
        # What has ended is not begun again by who types on.
        with pytest.raises(ConnectionLostError):
            pty.send("echo more\n")
    assert manager.client.terminals("shell") == []


def test_typing_after_the_end_that_nobody_has_read_opens_no_other_terminal(engine: World) -> None:
    manager = engine.manager()
    sandbox = manager.start("shell", image=IMAGE)
    pty = sandbox.pty.attach("main")
    pty.send("exit 3\n")
    until("the end of the terminal", lambda: None if manager.client.terminals("shell") else True)

    def refused() -> Optional[bool]:
        try:
            pty.send("echo more\n")
        except ConnectionLostError:
            return True
        return None

    until("the end of the connection", refused)
    assert manager.client.terminals("shell") == []
    # What came before is still there to be read.
    assert pty.wait() == 3


def test_a_terminal_that_ended_while_the_daemon_was_away_is_not_begun_anew(engine: World) -> None:
    manager = engine.manager()
    sandbox = manager.start("shell", image=IMAGE)
    pty = sandbox.pty.attach("main")
    pty.send("echo $$ > /tmp/pid; echo ready-$((6 * 7))\n")
    seen = b""
    while b"ready-42" not in seen:
        seen += pty.read(timeout=LIMIT) or b""
    also = sandbox.pty.attach("main")
    kill_under(manager.client, pty._stream)
    home = f"label=dev.abx.session.home={os.path.realpath(engine.root)}"
    [container] = docker("ps", "-q", "--filter", home)
    docker("exec", container, "sh", "-c", "kill -9 $(cat /tmp/pid)")
    is_gone = "[ -d /proc/$(cat /tmp/pid) ] || echo gone"
    until("the end of the shell", lambda: docker("exec", container, "sh", "-c", is_gone) or None)
    # Who reads hears how it ended, and who types that it did: no other shell gets the keys.
    assert pty.wait() == 137

    def refused() -> Optional[bool]:
        try:
            also.send("touch /tmp/typed\n")
        except ConnectionLostError:
            return True
        return None

    until("word of the end", refused)
    assert also.wait() == 137
    assert manager.client.terminals("shell") == []
    assert not docker("exec", container, "ls", "/tmp/typed")


def test_a_reader_and_a_writer_are_connected_again_together(engine: World) -> None:
    sandbox = engine.manager().start("shell", image=IMAGE)
    pty = sandbox.pty.create()
    shown: List[bytes] = []
    reader = threading.Thread(target=lambda: shown.append(b"".join(pty)), daemon=True)
    reader.start()
    pty.send("echo begun\n")
    kill_under(engine.client(), pty._stream)
    pty.send("echo again-$((6 * 7))\n")
    pty.send("exit\n")
    reader.join(LIMIT)
    assert not reader.is_alive()
    assert b"".join(shown).count(b"again-42") == 1


def test_what_is_typed_on_asyncio_after_a_restart_arrives(engine: World) -> None:
    async def work() -> None:
        async with AsyncClient(program=engine.program) as client:
            await client.start("shell", image=IMAGE)
            for reads in (False, True):
                stream = await client.attach("shell", terminal=f"t{reads}")
                await stream.write(b"echo ready\n")
                reading = asyncio.ensure_future(stream.wait()) if reads else None
                incoming: Any = stream._incoming
                await asyncio.get_running_loop().run_in_executor(None, kill, engine.client())
                while not incoming._ended:
                    await asyncio.sleep(0.01)
                await stream.write(b"exit 7\n")
                code, _ = await (reading or stream.wait())
                assert code == 7
                with pytest.raises(ConnectionLostError):
                    await stream.write(b"echo more\n")

    asyncio.run(asyncio.wait_for(work(), LIMIT))


def test_what_is_interrupted_ends_in_the_sandbox_too(engine: World) -> None:
    client = engine.client()
    client.start("a", image=IMAGE)

    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.run("a", "echo begun; sleep 1000", on_stdout=interrupt)
    [info] = client.exec_list("a")
    assert client.exec_wait(info.id, timeout=LIMIT).status == "exited"


def test_events_come_from_where_the_subscriber_was_and_go_on_live(world: World) -> None:
    client = world.client()
    save(client, "before")
    with client.events(since=0, kinds=["session."]) as events:
        assert events.wait_for(lambda event: event.session == "before", LIMIT).kind == "session.created"
        save(client, "after")
        event = events.wait_for(lambda event: True, LIMIT)
        assert (event.session, event.kind) == ("after", "session.created")
        assert event.by is not None and event.by["pid"] == os.getpid()
        assert events.next(timeout=0) is None
        assert events.last_seq == event.seq
    with client.events() as events:
        save(client, "now")
        assert next(iter(events)).session == "now", "from now on, and nothing after this is missed"
    assert names(client.history(kinds=["session."])) == ["before", "after", "now"]
    assert names(client.history("after")) == ["after"]


def test_events_go_on_after_the_daemon_was_killed(world: World) -> None:
    client = world.client()
    with client.events(kinds=["session."]) as events:
        save(client, "a")
        kill(client)
        save(client, "b")
        found = names([events.wait_for(lambda event: True, LIMIT) for _ in range(2)])
        assert found == ["a", "b"]
        world.abx("daemon", "restart")
        save(client, "c")
        assert events.wait_for(lambda event: True, LIMIT).session == "c"


def test_a_session_is_followed_after_it_was_renamed_while_the_daemon_was_away(world: World) -> None:
    client = world.client()
    save(client, "a")
    loop = asyncio.new_event_loop()
    asynchronous = AsyncClient(program=world.program)
    also = asynchronous.events(session="a")
    loop.run_until_complete(also.open())
    with client.events(session="a") as events:
        world.abx("daemon", "restart")
        client.rename("a", "b")
        save(client, "a")
        assert events.wait_for(lambda event: True, LIMIT).kind == "session.renamed"
        client.rename("b", "c")
        assert events.wait_for(lambda event: True, LIMIT).session == "c", "the new a is another one"
    for name in ("b", "c"):
        event = loop.run_until_complete(also.wait_for(lambda event: True, LIMIT))
        assert (event.kind, event.session) == ("session.renamed", name)
    also.close()
    loop.run_until_complete(asynchronous.close())
    loop.close()
    with pytest.raises(SessionNotFoundError):
        client.events(session="nobody")


def test_who_only_listens_does_not_start_a_daemon_that_was_stopped(world: World) -> None:
    client = world.client()
    events = client.events(reconnect=0.3)
    world.abx("daemon", "stop")
    with pytest.raises(DaemonUnreachableError):
        while True:
            events.next()
    with pytest.raises(DaemonUnreachableError):
        world.client(autostart=False).info()


def test_a_stream_of_events_is_closed_from_another_thread(world: World) -> None:
    events = world.client().events(kinds=["session."])
    threading.Timer(0.1, events.close).start()
    assert list(events) == []


def test_a_frozen_subscriber_hears_everything_in_the_end(world: World) -> None:
    client = world.client()
    count = 3000

    async def fill() -> None:
        async with AsyncClient(program=world.program) as other:
            # More than the socket, the connection and the daemon hold together.
            for first in range(0, count, 100):
                rows = [{"name": f"{number}-{'x' * 100}"} for number in range(first, first + 100)]
                await asyncio.gather(*(other.call("store.save", row) for row in rows))

    with client.events(kinds=["session."]) as events:
        asyncio.run(fill())
        found = [events.wait_for(lambda event: True, LIMIT) for _ in range(count)]
    numbers = {int((event.session or "").split("-")[0]) for event in found}
    assert numbers == set(range(count)), "what it was too slow for came again from where it was"
    assert [event.seq for event in found] == sorted({event.seq for event in found}), (
        "in order, and none twice"
    )


def test_asynchronous_events(world: World) -> None:
    blocking = world.client()

    async def work() -> None:
        async with AsyncClient(program=world.program) as client, client.events(kinds=["session."]) as events:
            await asyncio.get_running_loop().run_in_executor(None, save, blocking, "a")
            assert (await events.wait_for(lambda event: True, LIMIT)).session == "a"
            await asyncio.get_running_loop().run_in_executor(None, kill, blocking)
            save(blocking, "b")
            async for event in events:
                assert event.session == "b"
                break
            with pytest.raises(TimeoutError):
                await events.wait_for(lambda event: True, 0.05)
            save(blocking, "c")
            assert (await events.wait_for(lambda event: True, LIMIT)).session == "c", (
                "a wait that ended loses nothing"
            )
        assert await events.next() is None

    asyncio.run(asyncio.wait_for(work(), LIMIT))


def test_an_engine_that_is_away_is_said_with_its_addresses(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/engine.sock")
    with pytest.raises(EngineUnavailableError) as refused:
        world.client().start("a", image=IMAGE)
    assert "/no/such/engine.sock" in str(refused.value)


def test_every_kind_and_every_method_of_the_daemon_is_known(world: World) -> None:
    document = world.client().call("rpc.discover")
    assert set(document["components"]["errors"]) - set(errors.KINDS) == set()
    source = Path(errors.__file__).parent
    said = "".join(path.read_text(encoding="utf-8") for path in source.glob("*.py"))
    methods = {str(method["name"]) for method in document["methods"]}
    missing = {name for name in methods if f'"{name}"' not in said}
    assert missing == LEFT_OUT, "each has a method of the client, or is in the README as one that has none"


def test_a_socket_for_others_is_not_made(world: World) -> None:
    client = world.client()
    assert client.info().socket == client.place.path
    assert stat.S_IMODE(os.stat(client.place.path).st_mode) == 0o600
    assert json.loads(world.abx("daemon", "status", "--json"))["socket"] == client.place.path
    assert isinstance(client.events(), EventStream)
