"""Daemons that are none, and do what a daemon does seldom."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
from typing import Any, Callable, Dict, Iterator, Optional

from abx import _wire
from conftest import LIMIT


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
