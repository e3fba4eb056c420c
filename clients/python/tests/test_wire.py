"""What needs no daemon: bytes, paths, errors, and what both clients have in common."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import pickle
import random
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional

import pytest

import abx
from abx import _calls, _paths, _wire, errors
from abx._connection import Retries, check_protocol
from abx._exchange import Exchange, opening
from abx._link import Link
from abx.events import Following
from conftest import LIMIT, until


def test_lines_are_whole_however_they_come() -> None:
    texts = [b'{"a":1}', b"x" * 100_000, "ä\u2028".encode()]
    data = b"\n".join(texts) + b"\n\nrest"
    chance = random.Random(1)
    for _ in range(50):
        lines, found, at = _wire.LineBuffer(), [], 0
        while at < len(data):
            step = chance.choice((1, 7, 4096, 100_000)) if at < 20 else chance.randint(1000, 90_000)
            lines.feed(data[at : at + step])
            at += step
            while True:
                text = lines.next()
                if text is None:
                    break
                found.append(text)
        assert found == texts
        assert lines.rest() == b"rest"


def test_frames_are_whole_however_they_come_and_a_long_one_is_refused() -> None:
    data = b"".join([*_wire.frames(65, b"x" * 600_000), _wire.frame(66, b""), _wire.frame(67, b"{}")])
    for step in (1000, 262_149, len(data)):
        frames, found = _wire.FrameBuffer(), []
        for at in range(0, len(data), step):
            frames.feed(data[at : at + step])
            while True:
                frame = frames.next()
                if frame is None:
                    break
                found.append((frame[0], len(frame[1])))
        assert found == [(65, 262_144), (65, 262_144), (65, 75_712), (66, 0), (67, 2)]
    frames = _wire.FrameBuffer()
    frames.feed(b"\x41\xff\xff\xff\xff")
    with pytest.raises(abx.ProtocolError):
        frames.next()


def test_the_socket_is_where_the_programs_look_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ABX_SOCKET", raising=False)
    monkeypatch.delenv("ABX_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _paths.socket_path() == os.path.realpath(tmp_path / ".abx") + "/daemon.sock"
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("ABX_HOME", str(tmp_path / "link" / "home"))
    assert _paths.home_dir() == os.path.realpath(tmp_path) + "/disk/home"
    assert _paths.socket_path("/h") == "/h/daemon.sock"
    monkeypatch.setenv("ABX_SOCKET", "/elsewhere/s")
    assert _paths.socket_path("/h") == "/elsewhere/s"
    # The 64-bit FNV-1a hash, of the home where the socket is the home's.
    assert _paths._fnv1a(b"a") == 0xAF63DC4C8601EC8C
    monkeypatch.delenv("ABX_SOCKET")
    deep = "/" + "d" * 200
    assert _paths.socket_path(deep) == f"/tmp/abx-{os.geteuid()}/{_paths._fnv1a(deep.encode()):016x}.sock"


def test_errors_are_of_the_class_of_their_kind_and_keep_their_hint() -> None:
    data = {"kind": "session_not_found", "hint": "abx ls", "causes": ["because"]}
    error = errors.from_wire({"code": 1, "message": "no session", "data": data})
    assert isinstance(error, abx.SessionNotFoundError)
    assert (error.code, error.kind, str(error)) == (
        1,
        "session_not_found",
        "no session: because\nHint: abx ls",
    )
    newer = errors.from_wire({"code": 99, "message": "x", "data": {"kind": "of_tomorrow"}})
    assert isinstance(newer, abx.InternalError) and newer.kind == "of_tomorrow"
    wrong = errors.from_wire({"code": -32602, "message": "x", "data": {"kind": "invalid_params"}})
    assert isinstance(wrong, abx.InvalidParamsError) and isinstance(wrong, ValueError)
    missing = errors.from_wire({"code": 23, "message": "x", "data": {"kind": "file_not_found"}})
    assert isinstance(missing, FileNotFoundError)
    assert isinstance(errors.from_wire({"code": -32601, "message": "x"}), abx.ProtocolError)
    for each in (error, missing, abx.CommandExitError(3, "out", "a\nb\n")):
        again = pickle.loads(pickle.dumps(each))
        assert (type(again), str(again), again.kind) == (type(each), str(each), each.kind)
    assert str(abx.CommandExitError(3, "", "a\nwhy\n")) == "the command ended with 3: why"


def test_a_command_without_input_is_followed_where_its_output_stopped() -> None:
    exchange = Exchange(opening("s", cmd=["x"], stdin=False, timeout_ms=5, key="k"))
    assert exchange.can_go_on(), "an opening whose answer was lost is repeated under its key"
    exchange.answered(b'{"exec":"e","durable":true,"protocol":1}')
    assert exchange.take(_wire.STDOUT, b"abc") == ("stdout", b"abc")
    assert exchange.can_go_on(abx.ShuttingDownError("stopping"))
    follow = {
        key: exchange.opening.get(key)
        for key in ("follow", "stdout_from", "stderr_from", "key", "timeout_ms")
    }
    assert follow == {"follow": "e", "stdout_from": 3, "stderr_from": 0, "key": None, "timeout_ms": None}
    exchange.answered(b'{"exec":"e","durable":true,"protocol":1,"stdout_from":10}')
    assert exchange.lost_bytes == 7
    exchange.take(_wire.EXIT, b'{"exit_code":4,"reason":"why"}')
    assert exchange.exit == (4, "why")
    assert not exchange.can_go_on(abx.ExecNotFoundError("gone"))
    fed = Exchange(opening("s", cmd=["x"], stdin=True))
    fed.answered(b'{"exec":"e","durable":true,"protocol":1}')
    assert not fed.can_go_on(), "input that was on its way is lost"


def test_a_terminal_is_followed_by_what_runs_on_it_and_not_by_its_name() -> None:
    exchange = Exchange(opening("s", cmd=[], tty={}, attach=True, terminal="main", agent="usual", stdin=True))
    assert not exchange.can_go_on(), "without an answer nobody knows what was begun"
    exchange.answered(b'{"exec":"e","durable":true,"protocol":1}')
    assert exchange.can_go_on(abx.ShuttingDownError("stopping"))
    assert exchange.opening["follow"] == "e" and exchange.opening["attach"] is True
    assert not {"terminal", "agent", "key"} & set(exchange.opening)
    exchange.check_gone(abx.DaemonUnreachableError("away"))
    with pytest.raises(abx.ConnectionLostError, match="cannot be followed any more: no such command"):
        exchange.check_gone(abx.ExecNotFoundError("no such command"))


def test_a_subscriber_knows_where_to_go_on_and_what_it_missed() -> None:
    following = Following(7, None, ["session."])
    assert following.params() == {"since": 7, "kinds": ["session."]}
    following.subscribed(1)

    def told(**params: object) -> object:
        event = following.take({"method": "event", "params": {"subscription": 1, **params}})
        return event and (event.kind, event.seq)

    assert told(kind="subscribed", seq=7, data={"missed": 0}) is None
    assert told(kind="session.created", seq=9) == ("session.created", 9)
    assert following.take({"method": "event", "params": {"kind": "x", "seq": 99, "subscription": 2}}) is None
    assert told(kind="lagged", seq=12, data={"missed": 5}) is None
    assert (following.ended, following.params()["since"]) == (True, 12)
    following.subscribed(1)
    assert told(kind="subscribed", seq=40, data={"missed": 28}) == ("lagged", 40)
    assert told(kind="subscribed", seq=3, data={"missed": 0}) == ("lagged", 3), "numbers began anew"
    assert told(kind="session.created", seq=4) == ("session.created", 4)
    assert not following.ended


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A socket whose connections are each served on a thread: its path."""
    directory = tempfile.mkdtemp(prefix="abx-py-")
    path = os.path.join(directory, "s")

    def accept() -> None:
        while True:
            try:
                made = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=serve, args=(made,), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        threading.Thread(target=accept, daemon=True).start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
    shutil.rmtree(directory)


@contextlib.contextmanager
def fake(*answers: Dict[str, Any]) -> Iterator[str]:
    """A daemon that greets, and gives these answers to what it is asked next on each connection."""

    def serve(made: socket.socket) -> None:
        with contextlib.suppress(BrokenPipeError), made, made.makefile("rwb") as lines:
            for answer in ({"result": {"protocol": 1}}, *answers):
                asked = json.loads(lines.readline() or b"{}")
                lines.write(json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), **answer}).encode() + b"\n")
                lines.flush()
            lines.readline()

    with listening(serve) as path:
        yield path


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


@contextlib.contextmanager
def lagging(kind: str) -> "Iterator[tuple[str, list[Any]]]":
    """A daemon whose first subscription lags at once, and whose second is refused with an error of this kind.
    Gives what it was asked to subscribe to.
    """
    asked: "list[Any]" = []

    def answers(request: Any) -> "Iterator[Any]":
        if request["method"] == "daemon.hello":
            yield {"result": {"protocol": 1}}
            return
        asked.append(request["params"])
        if len(asked) == 2:
            yield {"error": {"code": 9, "message": "not now", "data": {"kind": kind}}}
            return
        yield {"result": len(asked)}
        told = [("lagged", 5)] if len(asked) == 1 else [("subscribed", 5), ("session.created", 6)]
        for what, seq in told:
            event = {"subscription": len(asked), "seq": seq, "at": "", "kind": what, "data": {}}
            yield {"method": "event", "params": event}

    def serve(made: socket.socket) -> None:
        with made, made.makefile("rwb") as lines:
            for text in lines:
                request = json.loads(text)
                for answer in answers(request):
                    if "method" not in answer:
                        answer["id"] = request["id"]
                    lines.write(json.dumps({"jsonrpc": "2.0", **answer}).encode() + b"\n")
                lines.flush()

    with listening(serve) as path:
        yield path, asked


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


@contextlib.contextmanager
def silent(first: bytes) -> "Iterator[tuple[str, list[socket.socket]]]":
    """A daemon that opens a stream, says this and breaks off, and to later connections says nothing. Gives
    those that are there.
    """
    made_ones: "list[socket.socket]" = []

    def serve(made: socket.socket) -> None:
        made_ones.append(made)
        if len(made_ones) == 1:
            with made:
                made.recv(65536)
                made.sendall(b'{"exec":"e","durable":true,"protocol":1}\n' + first)

    with listening(serve) as path:
        yield path, made_ones


def is_ended(made: socket.socket) -> Optional[bool]:
    """Whether the other side has ended a connection, after what it said."""
    made.settimeout(LIMIT)
    while made.recv(65536):
        pass
    return True


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


@contextlib.contextmanager
def mute(greets: int) -> "Iterator[tuple[str, list[socket.socket]]]":
    """A daemon that takes a subscription, and after so many greetings says nothing to any connection. The
    first breaks off. Gives the connections.
    """
    made_ones: "list[socket.socket]" = []

    def serve(made: socket.socket) -> None:
        made_ones.append(made)
        number = len(made_ones)
        if number > greets:
            return
        lines = made.makefile("rwb")
        for text in lines:
            request = json.loads(text)
            if number > 1 and request["method"] != "daemon.hello":
                continue
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"protocol": 1}}
            if request["method"] == "event.subscribe":
                answer["result"] = 1
            lines.write(json.dumps(answer).encode() + b"\n")
            if request["method"] == "event.subscribe":
                event = {"subscription": 1, "seq": 5, "at": "", "kind": "subscribed", "data": {}}
                told = {"jsonrpc": "2.0", "method": "event", "params": event}
                lines.write(json.dumps(told).encode() + b"\n")
                lines.flush()
                made.shutdown(socket.SHUT_RDWR)
                return
            lines.flush()

    with listening(serve) as path:
        yield path, made_ones


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


def test_a_screen_is_its_lines_and_knows_how_it_stands() -> None:
    told = {
        "lines": ["old", "$ "],
        "scrollback": 1,
        "size": {"cols": 80, "rows": 24},
        "cursor": {"column": 2, "row": 0, "visible": True},
        "alternate": True,
        "title": "vi",
    }
    with fake({"result": told}) as path:
        screen = abx.Client(socket=path, autostart=False).terminal_peek("a")
    assert screen == ["old", "$ "] and isinstance(screen, list)
    assert (screen.scrollback, screen.size, screen.title, screen.alternate) == (
        1,
        abx.PtySize(24, 80),
        "vi",
        True,
    )
    assert screen.cursor == abx.Cursor(row=0, column=2, visible=True)
    again = pickle.loads(pickle.dumps(screen))
    assert (again, again.title) == (screen, "vi")


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


@contextlib.contextmanager
def leaving(begun: object) -> "Iterator[tuple[str, list[str]]]":
    """A daemon that refuses what it is asked on its first two connections as one that stops, and tells
    whether that was begun. Gives what it was asked.
    """
    asked: "list[str]" = []
    made_ones: "list[socket.socket]" = []
    data = {"kind": "shutting_down", "begun": begun}
    refusal: "dict[str, Any]" = {"error": {"code": 21, "message": "the daemon is stopping", "data": data}}

    def serve(made: socket.socket) -> None:
        made_ones.append(made)
        number = len(made_ones)
        with contextlib.suppress(OSError), made, made.makefile("rwb") as lines:
            for text in lines:
                if text == _wire.PREFACE:
                    asked.append("stream")
                    lines.readline()
                    opened = {"exec": "e", "durable": False, "protocol": 1}
                    lines.write(json.dumps(refusal if number < 3 else opened).encode() + b"\n")
                    if number >= 3:
                        lines.write(_wire.frame(_wire.EXIT, b'{"exit_code":4}'))
                    return
                request = json.loads(text)
                answer: "dict[str, Any]" = {"result": {"protocol": 1}}
                if request["method"] != "daemon.hello":
                    asked.append(request["method"])
                    answer = refusal if number < 3 else {"result": "done"}
                lines.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}).encode() + b"\n")
                lines.flush()

    with listening(serve) as path:
        yield path, asked


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


@pytest.mark.parametrize("wrong", [-5, 0.0001, "600", b"6", float("nan"), float("inf"), object()])
def test_a_time_that_is_none_is_refused_before_anything_is_asked(wrong: Any) -> None:
    client = abx.Client(socket="/no/such/socket", autostart=False)
    for ask in (
        lambda: client.start("a", timeout=wrong),
        lambda: client.start("a", idle=wrong),
        lambda: client.update("a", timeout=wrong),
        lambda: client.stop("a", grace=wrong),
        lambda: client.run("a", "true", timeout=wrong),
    ):
        with pytest.raises(ValueError, match="a number of seconds, 0 or at least 0.001, not "):
            ask()


def test_times_are_milliseconds_and_less_than_nothing_is_no_wait() -> None:
    assert [_calls.seconds(each) for each in (None, 0, 0.0, 0.001, 1.5, 600)] == [None, 0, 0, 1, 1500, 600000]
    assert [_calls.patience(each) for each in (None, -3, 0.0001, 2)] == [None, 0, 0, 2000]


def test_a_daemon_of_another_age_is_said_with_what_to_do() -> None:
    with pytest.raises(abx.ProtocolError, match="speaks protocol 2, this client 1") as refused:
        check_protocol({"protocol": 2})
    assert "abx daemon restart" in str(refused.value)


PAIRS = [
    (abx.Client, abx.AsyncClient),
    (abx.SessionManager, abx.AsyncSessionManager),
    (abx.LocalSessionStore, abx.AsyncLocalSessionStore),
    (abx.Sandbox, abx.AsyncSandbox),
    (abx.sandbox.Commands, abx.async_sandbox.AsyncCommands),
    (abx.sandbox.Files, abx.async_sandbox.AsyncFiles),
    (abx.sandbox.Pty, abx.async_sandbox.AsyncPty),
    (abx.CommandHandle, abx.AsyncCommandHandle),
    (abx.PtyHandle, abx.AsyncPtyHandle),
    (abx.ExecStream, abx.AsyncExecStream),
    (abx.EventStream, abx.AsyncEventStream),
]

#: Where asyncio has a way of its own: opening by ``await``, and ``asyncio.wait_for``.
DIFFERS = {"open", "read", "next", "__init__"}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)
def test_both_clients_have_the_same_methods_with_the_same_parameters(pair: "tuple[type, type]") -> None:
    def surface(cls: type) -> "dict[str, object]":
        found: "dict[str, object]" = {}
        for name, value in vars(cls).items():
            if name.startswith("_") and name != "__init__":
                continue
            is_method = inspect.isfunction(value)
            parameters = inspect.signature(value).parameters.values() if is_method else ()
            found[name] = [(p.name, p.kind, repr(p.default)) for p in parameters]
        return found

    blocking, asynchronous = map(surface, pair)
    assert set(blocking) - DIFFERS == set(asynchronous) - DIFFERS
    for name in set(blocking) - DIFFERS:
        assert blocking[name] == asynchronous[name], name
