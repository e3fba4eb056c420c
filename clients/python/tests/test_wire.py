"""What needs no daemon: bytes, paths, errors, and what both clients have in common."""

from __future__ import annotations

import inspect
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

import abx
from abx import _calls, _paths, _wire, errors
from abx._connection import check_protocol
from abx._exchange import Exchange, opening
from abx.events import Following
from fakes import fake


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


def test_what_a_daemon_of_another_age_says_or_leaves_out_breaks_nothing() -> None:
    told = {"id": "1", "name": "a", "status": "of tomorrow", "idle_action": "of tomorrow", "new": {"x": 1}}
    older = {"name": "one", "session": "a", "size_bytes": 5, "excluded": []}
    with fake({"result": {"session": told, "snapshot": older, "more": True}}) as path:
        saved = abx.Client(socket=path, autostart=False).save("a")
    assert (saved.session.idle_action, saved.session.raw["new"]) == ("of tomorrow", {"x": 1})
    left_out = (saved.session.on_boot, saved.session.keep, saved.session.runtime, saved.session.idle_at)
    assert left_out == (None, None, None, None)
    assert (saved.session.warnings, saved.session.busy, saved.pruned) == ([], [], [])
    assert (saved.snapshot.own_bytes, saved.snapshot.creator) == (None, None)
    newer = {
        **told,
        "warnings": ["a mount is another"],
        "keep": 3,
        "attention_at": "2026-03-04T10:00:00.000Z",
    }
    with fake({"result": newer}) as path:
        session = abx.Client(socket=path, autostart=False).resume("a", snapshot="one")
    assert (session.warnings, session.keep) == (["a mount is another"], 3)
    assert session.attention_at is not None and session.attention_at.hour == 10


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


@pytest.mark.parametrize("wrong", [-5, 0.0001, "600", b"6", float("nan"), float("inf"), object()])
def test_a_time_that_is_none_is_refused_before_anything_is_asked(wrong: Any) -> None:
    client = abx.Client(socket="/no/such/socket", autostart=False)
    for ask in (
        lambda: client.start("a", timeout=wrong),
        lambda: client.start("a", idle=wrong),
        lambda: client.update("a", timeout=wrong),
        lambda: client.stop("a", grace=wrong),
        lambda: client.save("a", timeout=wrong),
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
