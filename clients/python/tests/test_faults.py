"""What a client does of a daemon that is silent, gone, leaving, or not one at all; none is needed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from typing import Any, Callable

import pytest

import abx
from abx import _wire
from abx._connection import Retries
from abx._exchange import Exchange, opening
from abx._link import Link
from conftest import LIMIT, until
from fakes import fake, is_ended, lagging, leaving, listening, mute, silent


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be somebody else")
def test_a_socket_of_another_user_gets_nothing() -> None:
    directory = tempfile.mkdtemp(prefix="abx-py-")
    path = os.path.join(directory, "s")
    heard: "list[bytes]" = []

    def hear() -> None:
        while True:
            try:
                made = listener.accept()[0]
            except OSError:
                return
            with made:
                heard.append(made.recv(1000))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        # Whoever listens is who counts.
        os.seteuid(65534)
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        threading.Thread(target=hear, daemon=True).start()
        client = abx.Client(socket=path, autostart=False)
        refusals: "list[Callable[[], Any]]" = [
            client.info,
            lambda: client.exec("a", ["true"], env={"KEY": "secret"}),
            client.events,
        ]
        for refused in refusals:
            with pytest.raises(abx.DaemonUnreachableError, match="user 65534") as said:
                refused()
            assert "ABX_HOME" in str(said.value)

        async def ask() -> None:
            async with abx.AsyncClient(socket=path, autostart=False) as client:
                with pytest.raises(abx.DaemonUnreachableError, match="user 65534"):
                    await client.info()
                with pytest.raises(abx.DaemonUnreachableError, match="user 65534"):
                    await client.exec("a", ["true"], env={"KEY": "secret"})

        asyncio.run(ask())
        until("all that was said", lambda: len(heard) == 5 or None)
        listener.shutdown(socket.SHUT_RDWR)
    shutil.rmtree(directory)
    assert heard == [b""] * 5


@pytest.mark.parametrize("kind", ["limit", "shutting_down"])
def test_a_subscriber_that_fell_behind_and_is_refused_asks_again(kind: str) -> None:
    with lagging(kind) as (path, asked):
        client = abx.Client(socket=path, autostart=False)
        with client.events() as events:
            assert events.wait_for(lambda event: True, LIMIT).seq == 6
        assert asked == [{}, {"since": 5}, {"since": 5}]

    async def ask(path: str) -> None:
        async with abx.AsyncClient(socket=path, autostart=False) as client, client.events() as events:
            assert (await events.wait_for(lambda event: True, LIMIT)).seq == 6

    with lagging(kind) as (path, asked):
        asyncio.run(ask(path))
        assert asked == [{}, {"since": 5}, {"since": 5}]


def test_an_engines_timeout_is_not_taken_for_one_of_the_client() -> None:
    refusal = {"error": {"code": 12, "message": "slow", "data": {"kind": "engine_timeout"}}}
    with fake(refusal) as path:
        with pytest.raises(abx.EngineTimeoutError):
            abx.Client(socket=path, autostart=False).pause("a")

        async def ask() -> None:
            async with abx.AsyncClient(socket=path, autostart=False) as client:
                await client.pause("a")

        with pytest.raises(abx.EngineTimeoutError):
            asyncio.run(ask())


def test_a_stream_says_the_name_that_a_greeting_says() -> None:
    refusal = {"error": {"code": 1, "message": "no", "data": {"kind": "session_not_found"}}}
    said: "list[Any]" = []
    directory = tempfile.mkdtemp(prefix="abx-py-")
    path = os.path.join(directory, "s")

    def serve(count: int) -> None:
        for _ in range(count):
            with listener.accept()[0] as made, made.makefile("rwb") as lines:
                assert lines.readline() == _wire.PREFACE
                said.append(json.loads(lines.readline()).get("client"))
                lines.write(json.dumps(refusal).encode() + b"\n")

    async def ask() -> None:
        async with abx.AsyncClient(socket=path, autostart=False, name="mine") as client:
            with pytest.raises(abx.SessionNotFoundError):
                await client.exec("a", ["true"])
            with pytest.raises(abx.SessionNotFoundError):
                await client.exec_follow("a", "e")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=serve, args=(4,), daemon=True)
        thread.start()
        client = abx.Client(socket=path, autostart=False, name="mine")
        with pytest.raises(abx.SessionNotFoundError):
            client.exec("a", ["true"])
        with pytest.raises(abx.SessionNotFoundError):
            client.exec_follow("a", "e")
        asyncio.run(ask())
        thread.join(LIMIT)
    shutil.rmtree(directory)
    assert said == ["mine"] * 4


def test_keys_typed_while_the_daemon_is_away_go_to_the_next() -> None:
    directory = tempfile.mkdtemp(prefix="abx-py-")
    path = os.path.join(directory, "s")
    gone = threading.Event()
    typed: "list[bytes]" = []

    def serve() -> None:
        for at in range(2):
            with listener.accept()[0] as made, made.makefile("rwb") as lines:
                lines.readline()
                lines.readline()
                lines.write(b'{"exec":"e","durable":true,"protocol":1}\n' + _wire.frame(_wire.STDOUT, b"$ "))
                lines.flush()
                typed.append(lines.read(8))
            if at == 0:
                gone.set()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        threading.Thread(target=serve, daemon=True).start()
        with abx.Client(socket=path, autostart=False).attach("a") as stream:
            assert stream.read(LIMIT) == ("stdout", b"$ ")
            stream.write(b"one")
            assert gone.wait(LIMIT)
            stream.write(b"two")
            assert stream.read(LIMIT) == ("stdout", b"$ ")
            until("what was typed", lambda: len(typed) == 2 or None)
    shutil.rmtree(directory)
    assert typed == [_wire.frame(_wire.INPUT, b"one"), _wire.frame(_wire.INPUT, b"two")]


def test_a_daemon_that_does_not_answer_is_waited_for_as_long_as_any_call() -> None:
    directory = tempfile.mkdtemp(prefix="abx-py-")
    path = os.path.join(directory, "s")

    async def ask() -> None:
        async with abx.AsyncClient(socket=path, autostart=False, timeout=0.3) as client:
            await client.list()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        # It takes connections, and says nothing.
        listener.listen()
        began = time.monotonic()
        with abx.Client(socket=path, autostart=False, timeout=0.3) as client:
            with pytest.raises(abx.CallTimeoutError, match="within 0.3 s; nothing was asked") as unheard:
                client.list()
        with pytest.raises(abx.CallTimeoutError, match="within 0.3 s; nothing was asked"):
            asyncio.run(ask())
        assert time.monotonic() - began < 15
    shutil.rmtree(directory)
    assert unheard.value.hint == "abx daemon restart"


def test_who_reads_for_so_long_waits_no_longer_for_a_daemon_that_says_nothing() -> None:
    with silent(b"") as (path, made):
        stream = abx.Client(socket=path, autostart=False).exec("a", ["true"])
        began = time.monotonic()
        for _ in range(3):
            with pytest.raises(TimeoutError, match="no output came in time"):
                stream.read(timeout=0.2)
        assert len(made) == 2, "each goes on with the connection that the one before began"
        reader = threading.Thread(target=lambda: pytest.raises(abx.ConnectionLostError, stream.read))
        reader.start()
        until("the reader to wait", lambda: stream._receiving.locked() or None)
        with pytest.raises(TimeoutError, match="another thread reads"):
            stream.read(timeout=0.2)
        assert time.monotonic() - began < 15
        stream.close()
        reader.join(LIMIT)
        assert not reader.is_alive()
        assert is_ended(made[1])


def test_a_stream_that_is_closed_while_it_connects_again_stays_closed() -> None:
    with silent(_wire.frame(_wire.STDOUT, b"one")) as (path, made):
        stream = abx.Client(socket=path, autostart=False).exec("a", ["true"])
        failures: "list[BaseException]" = []

        def read() -> None:
            try:
                for _ in stream:
                    pass
            except abx.ConnectionLostError as error:
                failures.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        until("the second connection", lambda: len(made) == 2 or None)
        stream.close()
        reader.join(LIMIT)
        assert len(failures) == 1 and is_ended(made[1])

    async def ask(path: str, made: "list[socket.socket]") -> None:
        async with abx.AsyncClient(socket=path, autostart=False) as client:
            stream = await client.exec("a", ["true"])
            assert await stream.read() == ("stdout", b"one")
            reading = asyncio.ensure_future(stream.read())
            while len(made) < 2:
                await asyncio.sleep(0.01)
            stream.close()
            with pytest.raises(abx.ConnectionLostError):
                await reading
            await asyncio.get_running_loop().run_in_executor(None, is_ended, made[1])

    with silent(_wire.frame(_wire.STDOUT, b"one")) as (path, made):
        asyncio.run(asyncio.wait_for(ask(path, made), LIMIT))


def test_an_opening_is_waited_for_as_long_as_any_call() -> None:
    async def ask(path: str) -> None:
        async with abx.AsyncClient(socket=path, autostart=False, timeout=0.3) as client:
            await client.exec("a", ["true"])

    with silent(b"") as (path, made):
        with pytest.raises(abx.ConnectionLostError):
            abx.Client(socket=path, autostart=False).exec("a", ["cat"], stdin=True).read()
        assert len(made) == 1, "and to those after it, it says nothing"
        client = abx.Client(socket=path, autostart=False, timeout=0.3)
        with pytest.raises(abx.CallTimeoutError, match="the opening was not answered within 0.3 s"):
            client.exec("a", ["true"])
        with pytest.raises(abx.CallTimeoutError, match="the opening was not answered within 0.3 s"):
            asyncio.run(asyncio.wait_for(ask(path), LIMIT))


def test_a_link_keeps_its_number_as_long_as_somebody_is_about_to_use_it() -> None:
    ours, theirs = socket.socketpair()
    link = Link(ours)
    number = ours.fileno()
    with theirs, link.held() as made:
        link.end()
        assert theirs.recv(1) == b"", "it has ended"
        with contextlib.ExitStack() as others:
            numbers = {others.enter_context(socket.socket()).fileno() for _ in range(5)}
        assert made.fileno() == number and number not in numbers
        with pytest.raises(OSError):
            link.held().__enter__()
    assert ours.fileno() == -1


def test_a_stream_that_is_closed_under_a_writer_keeps_its_number_until_that_has_ended() -> None:
    held = threading.Event()

    def serve(made: socket.socket) -> None:
        with made:
            made.recv(65536)
            made.sendall(b'{"exec":"e","durable":false,"protocol":1}\n')
            held.wait(LIMIT)

    with listening(serve) as path:
        stream = abx.Client(socket=path, autostart=False).exec("a", ["cat"], stdin=True)
        link: Any = stream._socket
        failures: "list[BaseException]" = []

        def write() -> None:
            try:
                stream.write(b"x" * 64 * 1024 * 1024)
            except abx.ConnectionLostError as error:
                failures.append(error)

        writer = threading.Thread(target=write)
        with link.held():
            writer.start()
            until("the writer to be stuck", lambda: link._users == 2 or None)
            stream.close()
            writer.join(LIMIT)
            assert len(failures) == 1 and link.fileno() >= 0
        assert link.fileno() == -1
        held.set()


@pytest.mark.parametrize("greets", [1, 1000])
def test_limits_of_a_subscriber_hold_against_a_daemon_that_says_nothing(greets: int) -> None:
    with mute(greets) as (path, made):
        began = time.monotonic()
        client = abx.Client(socket=path, autostart=False)
        with client.events(reconnect=1.5) as events:
            assert [events.next(timeout=each) for each in (0.3, 0, 0.3)] == [None] * 3
            with pytest.raises((abx.CallTimeoutError, abx.ConnectionLostError)):
                while True:
                    events.next(timeout=0.3)
        assert 1.5 <= time.monotonic() - began < 8, "the time counts on from one call to the next"
        with pytest.raises(abx.CallTimeoutError, match="within 0.3 s"):
            abx.Client(socket=path, autostart=False, timeout=0.3).events()

    async def ask(path: str) -> None:
        async with abx.AsyncClient(socket=path, autostart=False) as client:
            async with client.events(reconnect=1.5) as events:
                with pytest.raises((abx.CallTimeoutError, abx.ConnectionLostError)):
                    while True:
                        await asyncio.wait({reading := asyncio.ensure_future(events.next())}, timeout=0.3)
                        if reading.done():
                            reading.result()
                        reading.cancel()
        async with abx.AsyncClient(socket=path, autostart=False, timeout=0.3) as client:
            with pytest.raises(abx.CallTimeoutError, match="within 0.3 s"):
                await client.events().open()

    with mute(greets) as (path, made):
        began = time.monotonic()
        asyncio.run(asyncio.wait_for(ask(path), LIMIT))
        assert time.monotonic() - began < 8


@pytest.mark.parametrize("greets", [1, 1000])
def test_events_that_are_closed_while_they_are_subscribed_to_again_stay_closed(greets: int) -> None:
    with mute(greets) as (path, made):
        events = abx.Client(socket=path, autostart=False).events()
        found: "list[object]" = []
        reader = threading.Thread(target=lambda: found.append(events.next()))
        reader.start()
        until("the second connection", lambda: len(made) == 2 or None)
        began = time.monotonic()
        events.close()
        reader.join(LIMIT)
        assert found == [None] and time.monotonic() - began < 5
        assert greets > 1 or is_ended(made[1])

    async def ask(path: str, made: "list[socket.socket]") -> None:
        async with abx.AsyncClient(socket=path, autostart=False) as client:
            events = await client.events().open()
            reading = asyncio.ensure_future(events.next())
            while len(made) < 2:
                await asyncio.sleep(0.01)
            events.close()
            assert await asyncio.wait_for(reading, 5) is None
            if greets == 1:
                await asyncio.get_running_loop().run_in_executor(None, is_ended, made[1])

    with mute(greets) as (path, made):
        asyncio.run(asyncio.wait_for(ask(path, made), LIMIT))


def test_an_answer_that_is_nested_without_end_is_a_protocol_error() -> None:
    def serve(made: socket.socket) -> None:
        with made:
            made.recv(65536)
            made.sendall(b"[" * 200_000 + b"\n")

    async def ask(path: str) -> None:
        async with abx.AsyncClient(socket=path, autostart=False) as client:
            with pytest.raises(abx.ProtocolError, match="does not speak JSON"):
                await client.info()
            with pytest.raises(abx.ProtocolError, match="does not speak JSON"):
                await client.exec("a", ["true"])

    with listening(serve) as path:
        client = abx.Client(socket=path, autostart=False)
        with pytest.raises(abx.ProtocolError, match="does not speak JSON"):
            client.info()
        with pytest.raises(abx.ProtocolError, match="does not speak JSON"):
            client.exec("a", ["true"])
        asyncio.run(ask(path))
    exchange = Exchange(opening("s", cmd=["x"]))
    for payload in (b"[" * 200_000, b"[]", b"{}", b'{"exit_code":null}'):
        with pytest.raises(abx.ProtocolError):
            exchange.take(_wire.EXIT, payload)


def test_text_that_is_no_unicode_is_refused_before_it_is_sent() -> None:
    with fake({"result": None}) as path:
        client = abx.Client(socket=path, autostart=False)
        asks: "list[Callable[[], Any]]" = [
            lambda: client.get("a\ud800b"),
            lambda: client.read_file("a", os.fsdecode(b"/caf\xe9")),
            lambda: client.exec("a", ["echo", "\udcff"]),
        ]
        for ask in asks:
            with pytest.raises(abx.InvalidParamsError, match="half a character") as refused:
                ask()
            assert isinstance(refused.value, ValueError) and refused.value.code is None

        async def also() -> None:
            async with abx.AsyncClient(socket=path, autostart=False) as client:
                with pytest.raises(abx.InvalidParamsError, match="half a character"):
                    await client.get("a\ud800b")
                with pytest.raises(abx.InvalidParamsError, match="half a character"):
                    await client.exec("a", ["echo", "\udcff"])

        asyncio.run(also())


def test_what_a_daemon_that_stops_has_not_begun_is_asked_of_the_next() -> None:
    with leaving(False) as (path, asked):
        assert abx.Client(socket=path, autostart=False).call("session.stop", {"name": "a"}) == "done"
        assert asked == ["session.stop"] * 3
    with leaving(False) as (path, asked):
        assert abx.Client(socket=path, autostart=False).exec("a", ["cat"], stdin=True).wait() == (4, None)
        assert asked == ["stream"] * 3

    async def ask(path: str) -> None:
        async with abx.AsyncClient(socket=path, autostart=False) as client:
            assert await client.call("session.stop", {"name": "a"}) == "done"

    async def stream(path: str) -> None:
        async with abx.AsyncClient(socket=path, autostart=False) as client:
            assert await (await client.exec("a", ["cat"], stdin=True)).wait() == (4, None)

    for work, what in ((ask, "session.stop"), (stream, "stream")):
        with leaving(False) as (path, asked):
            asyncio.run(asyncio.wait_for(work(path), LIMIT))
            assert asked == [what] * 3


@pytest.mark.parametrize("begun", [None, True])
def test_what_a_daemon_that_stops_may_have_begun_is_not_asked_again(begun: object) -> None:
    async def ask(path: str) -> None:
        async with abx.AsyncClient(socket=path, autostart=False) as client:
            with pytest.raises(abx.ShuttingDownError):
                await client.stop("a")
            with pytest.raises(abx.ShuttingDownError):
                await client.exec("a", ["cat"], stdin=True)

    with leaving(begun) as (path, asked):
        with pytest.raises(abx.ShuttingDownError):
            abx.Client(socket=path, autostart=False).stop("a")
        with pytest.raises(abx.ShuttingDownError):
            abx.Client(socket=path, autostart=False).exec("a", ["cat"], stdin=True)
        assert asked == ["session.stop", "stream"]
    with leaving(begun) as (path, asked):
        asyncio.run(asyncio.wait_for(ask(path), LIMIT))
        assert asked == ["session.stop", "stream"]
    unbegun = abx.ShuttingDownError("stopping", data={"begun": False})
    assert not Retries(False, 0.0).may_ask(unbegun), "it is not waited for longer than a call may take"
