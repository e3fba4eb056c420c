"""The asyncio client, on a real engine."""

from __future__ import annotations

import asyncio
from typing import Awaitable, Callable, List, TypeVar

import pytest

from abx import (
    AsyncClient,
    AsyncLocalSessionStore,
    AsyncSessionManager,
    CallTimeoutError,
    ConnectionLostError,
    PtySize,
    SessionAlreadyExistsError,
    SessionInfo,
    SessionNotFoundError,
    WrongStateError,
)
from conftest import IMAGE, LIMIT, World

T = TypeVar("T")


def run(world: World, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Runs a coroutine with a client, within the limit."""

    async def main() -> T:
        async with AsyncClient(program=world.program) as client:
            return await asyncio.wait_for(work(client), LIMIT)

    return asyncio.run(main())


def test_how_a_session_is_resumed_and_what_becomes_of_it_with_await(engine: World) -> None:
    async def work(client: AsyncClient) -> None:
        manager = AsyncSessionManager(client=client)
        sandbox = await manager.start("a", image=IMAGE, idle_action="pause", on_boot="resume", keep=1)
        said = sandbox.session
        assert (said.idle_action, said.on_boot, said.keep) == ("pause", "resume", 1)
        assert (await client.update("a", keep=2, idle_action="save", on_boot="stopped")).keep == 2
        await sandbox.files.write("/root/state", "first")
        assert (await sandbox.save("one", timeout=300)).pruned == []
        for refused in (
            sandbox.commands.run("true", resume=False),
            sandbox.commands.run("true", background=True, resume=False),
            sandbox.pty.create(resume=False),
            sandbox.pty.attach(resume=False),
            manager.connect("a", resume=False),
        ):
            with pytest.raises(WrongStateError):
                await refused
        assert (await sandbox.commands.run("cat /root/state")).stdout == "first"
        await sandbox.files.write("/root/state", "second")
        await sandbox.stop()
        assert await sandbox.files.read("/root/state", resume=False) == "second"
        await sandbox.resume("one", discard=True)
        assert await sandbox.files.read("/root/state") == "first"
        started = await client.exec_start("a", ["cat"], input="given")
        async with await client.exec_follow("a", started.id) as stream:
            assert [data async for _, data in stream] == [b"given"]
        assert await sandbox.kill(forget=True)
        assert await client.snapshots() == []

    run(engine, work)


def test_what_users_of_the_older_sdk_write_with_await(engine: World) -> None:
    async def work(client: AsyncClient) -> None:
        manager = AsyncSessionManager(client=client)
        sandbox = await manager.start("a", template="base", timeout=600, metadata={"k": "v"}, image=IMAGE)
        with pytest.raises(SessionAlreadyExistsError):
            await manager.start("a", image=IMAGE)
        heard: List[str] = []

        async def hear(text: str) -> None:
            heard.append(text)

        result = await sandbox.commands.run("cat; exit 3", stdin="input", on_stdout=hear)
        assert (result.stdout, result.exit_code, heard) == ("input", 3, ["input"])
        big = bytes(range(256)) * 20_000
        await sandbox.files.write("/tmp/new/big", big)
        assert await sandbox.files.read("/tmp/new/big", format="bytes") == big
        assert [each.name for each in await sandbox.files.list("/tmp/new")] == ["big"]
        assert await sandbox.files.exists("/tmp/new")
        handle = await sandbox.commands.run("echo bg; exit 4", background=True)
        ended = await handle.wait()
        assert (ended.stdout, ended.exit_code) == ("bg\n", 4)
        fed = await sandbox.commands.run("cat", background=True, stdin=True)
        await fed.send_stdin("x")
        await fed.close_stdin()
        assert (await fed.wait()).stdout == "x"
        async with await sandbox.pty.create(PtySize(30, 90), cmd=["sh", "-c", "stty size; exit 2"]) as pty:
            shown: List[bytes] = []
            assert await pty.wait(shown.append) == 2
            assert b"30 90" in b"".join(shown)
        assert [each.name for each in await manager.list()] == ["a"]
        await manager.stop("a")
        assert (await manager.get_info("a")).status == "stopped"
        assert (await manager.connect("a")).id == sandbox.id
        saved = await sandbox.save(keep_running=True)
        assert saved.session.status == "running"
        fork = await sandbox.fork("b")
        assert await fork.kill() and not await fork.kill()
        await manager.stop("a", kill=True)
        with pytest.raises(SessionNotFoundError):
            await manager.connect("a")

    run(engine, work)


def test_many_calls_at_once_and_a_slow_one_holds_up_none(engine: World) -> None:
    async def work(client: AsyncClient) -> None:
        await client.start("a", image=IMAGE)
        slow = asyncio.ensure_future(client.call("exec.run", {"session": "a", "cmd": ["sleep", "1000"]}))
        answers = await asyncio.gather(*(client.get("a") for _ in range(100)))
        assert {each.name for each in answers} == {"a"} and not slow.done()
        results = await asyncio.gather(*(client.run("a", ["echo", str(n)]) for n in range(10)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(10)]
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert (await client.get("a")).status == "running", "the connection goes on"
        client.timeout = 0.1
        with pytest.raises(CallTimeoutError):
            await client.call("exec.run", {"session": "a", "cmd": ["sleep", "1000"]})
        client.timeout = None
        await client.delete("a")

    run(engine, work)


def test_a_command_that_nobody_waits_for_any_more_ends(engine: World) -> None:
    async def work(client: AsyncClient) -> None:
        await client.start("a", image=IMAGE)
        begun = asyncio.Event()
        waiting = asyncio.ensure_future(
            client.run("a", "echo begun; sleep 1000", on_stdout=lambda text: begun.set())
        )
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        [info] = await client.exec_list("a")
        assert (await client.exec_wait(info.id, timeout=LIMIT)).status == "exited"

    run(engine, work)


def test_who_writes_on_a_stream_that_is_closed_hears_of_it(engine: World) -> None:
    async def work(client: AsyncClient) -> None:
        await client.start("a", image=IMAGE)
        stream = await client.exec("a", ["sleep", "1000"], stdin=True)
        writing = [asyncio.ensure_future(stream.write(b"x" * 10_000_000)) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in writing)
        stream.close()
        for each in writing:
            with pytest.raises(ConnectionLostError):
                await each
        with pytest.raises(ConnectionLostError):
            await stream.read()

    run(engine, work)


def test_input_that_is_not_taken_holds_up_nothing(engine: World) -> None:
    async def work(client: AsyncClient) -> None:
        await client.start("a", image=IMAGE)
        data = b"x" * 10_000_000
        assert (await client.run("a", ["true"], input=data)).exit_code == 0
        found = await client.run("a", "head -c 3; exit 5", input=data)
        assert (found.stdout, found.exit_code) == ("xxx", 5)

    run(engine, work)


def test_a_store_with_await(world: World) -> None:
    async def work(client: AsyncClient) -> None:
        one = AsyncLocalSessionStore("/srv/one", client=client)
        await one.save(SessionInfo("a", sandbox_id="s"))
        assert await one.exists("a")
        assert [each.sandbox_id for each in await one.list_all()] == ["s"]
        assert await AsyncLocalSessionStore(client=client).load("a") is None
        assert await one.delete("a")

    run(world, work)


def test_one_client_in_one_loop_after_another(world: World) -> None:
    client = AsyncClient(program=world.program)

    async def ask() -> int:
        return (await client.info()).protocol

    assert [asyncio.run(ask()) for _ in range(2)] == [1, 1]


def test_many_who_ask_first_share_the_start_of_the_daemon(world: World) -> None:
    async def work(client: AsyncClient) -> None:
        pids = {info.pid for info in await asyncio.gather(*(client.info() for _ in range(20)))}
        assert len(pids) == 1

    run(world, work)
