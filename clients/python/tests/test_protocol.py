"""What the daemon's document says that it takes and gives, and what the package offers of that."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest

from abx import (
    AsyncClient,
    Client,
    Cursor,
    DaemonInfo,
    Deleted,
    Directory,
    EntryInfo,
    Event,
    ExecInfo,
    Limits,
    Mount,
    Port,
    PtySize,
    Saved,
    Screen,
    Session,
    SessionInfo,
    Snapshot,
    TerminalInfo,
    WriteInfo,
    _calls,
    _tar,
)
from abx._connection import greeting
from abx.events import Following
from conftest import FIELDS_LEFT_OUT, PARAMS_LEFT_OUT, World

SCHEMAS = Path(__file__).resolve().parents[3] / "proto-docs" / "schemas.json"

#: What each argument is given, by its name: always something that has to be sent.
SAMPLES: Dict[str, Any] = {
    "agent": "usual",
    "check": True,
    "cmd": ["true"],
    "create_dirs": True,
    "cwd": "/",
    "data": b"data",
    "discard": True,
    "engine": "docker",
    "env": {"A": "b"},
    "forget": True,
    "grace": 1.0,
    "id": "id",
    "idle": 1.0,
    "idle_action": "pause",
    "image": "image",
    "input": "input",
    "keep": 3,
    "keep_running": True,
    "keep_snapshots": True,
    "key": "key",
    "kinds": ["session."],
    "limit": 5,
    "limits": Limits(pids=5),
    "metadata": {"a": "b"},
    "mode": 0o600,
    "mounts": ["/srv"],
    "name": "name",
    "names": "name",
    "network": "none",
    "new_name": "other",
    "note": "note",
    "on_boot": "resume",
    "on_progress": lambda progress: None,
    "on_stderr": lambda text: None,
    "on_stdout": lambda text: None,
    "path": "/path",
    "ports": [80],
    "profile": "moderate",
    "read_only": False,
    "resume": True,
    "reuse": True,
    "scrollback": 5,
    "session": "name",
    "signal": 9,
    "since": 5,
    "size": PtySize(),
    "snapshot": "snapshot",
    "state": "done",
    "status": ["running"],
    "stderr_from": 5,
    "stdin": True,
    "stdout_from": 5,
    "template": "base",
    "terminal": "main",
    "text": "text",
    "timeout": 1.0,
    "tty": PtySize(),
    "until": "idle",
    "user": "root",
    "workspace": "/srv",
}

#: Methods of a client that make any call, or none, or another than of one answer.
APART = {"call", "close", "events", "open_stream"}

#: What the daemon's types are made into.
CLASSES: Dict[str, Any] = {
    "Cursor": Cursor,
    "DaemonInfoResult": DaemonInfo,
    "DeleteResult": Deleted,
    "Event": Event,
    "ExecInfo": ExecInfo,
    "FileEntry": EntryInfo,
    "FileListResult": Directory,
    "FileWriteResult": WriteInfo,
    "Limits": Limits,
    "Mount": Mount,
    "Port": Port,
    "SaveResult": Saved,
    "Session": Session,
    "Size": PtySize,
    "Snapshot": Snapshot,
    "StoreRow": SessionInfo,
    "TerminalInfo": TerminalInfo,
    "TerminalScreen": Screen,
    "Workspace": Mount,
}

#: Types that are given as they came.
MAPPINGS = {"By", "EngineInfo", "Excluded", "Setting"}

#: Methods that keep whatever they are sent.
TAKE_ALL = {"store.save"}

#: Fields that have another name, or none since the value is a list of them.
RENAMED = {
    "DeleteResult.deleted": "name",
    "FileEntry.kind": "type",
    "FileEntry.size_bytes": "size",
    "FileListResult.entries": None,
    "FileWriteResult.size_bytes": "size",
    "StoreRow.namespace": None,
    "TerminalScreen.lines": None,
}


class Asked(Exception):
    """Something was asked for, which is all that is wanted to know."""


class Notes:
    """The parameters that a client would send, by method; ``Open`` for the opening of a stream."""

    def __init__(self) -> None:
        self.sent: Dict[str, Set[str]] = {}

    def add(self, method: str, params: Dict[str, Any]) -> Any:
        """Notes a call, which is not made."""
        self.sent.setdefault(method, set()).update(params)
        raise Asked


class NotingClient(Client):
    """A client that calls nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.notes = Notes()

    def _do(self, call: "_calls.Call[Any]", on_progress: Any = None) -> Any:
        return self.notes.add(call.method, call.params)

    def open_stream(self, first: Dict[str, Any]) -> Any:
        return self.notes.add("Open", first)


class NotingAsyncClient(AsyncClient):
    """The same on asyncio."""

    def __init__(self) -> None:
        super().__init__()
        self.notes = Notes()

    async def _do(self, call: "_calls.Call[Any]", on_progress: Any = None) -> Any:
        return self.notes.add(call.method, call.params)

    async def open_stream(self, first: Dict[str, Any]) -> Any:
        return self.notes.add("Open", first)


def called(client: Any, base: type) -> Dict[str, Set[str]]:
    """What a client sends when each of its methods is called with everything that it takes."""
    for name, method in vars(base).items():
        if name.startswith("_") or name in APART or not inspect.isfunction(method):
            continue
        places: List[Any] = []
        named: Dict[str, Any] = {}
        for each in list(inspect.signature(method).parameters.values())[1:]:
            if each.kind is each.VAR_POSITIONAL:
                places.append(SAMPLES[each.name])
            else:
                named[each.name] = SAMPLES[each.name]
        with contextlib.suppress(Asked):
            made = getattr(client, name)(*places, **named)
            asyncio.run(made)
    found: Dict[str, Set[str]] = client.notes.sent
    return found


def everything_sent() -> Dict[str, Set[str]]:
    """The same of both clients, who differ in nothing, with what goes other ways."""
    found = called(NotingClient(), Client)
    assert called(NotingAsyncClient(), AsyncClient) == found
    found["Open"] |= {"client", *_tar.copy_out("name", "/path", True)}
    found["daemon.hello"] = set(greeting("name"))
    found["event.subscribe"] = set(Following(1, "name", ["session."]).params())
    for call in (
        _calls.store_save(SessionInfo("name"), "/srv"),
        _calls.store_load("name", "/srv"),
        _calls.store_list("/srv"),
        _calls.store_delete("name", "/srv"),
    ):
        found[call.method] = set(call.params)
    return found


def differences(sent: Dict[str, Set[str]], taken: Dict[str, Set[str]]) -> Set[str]:
    """What is taken and never sent, as ``METHOD.PARAM``. Nothing may be sent that is not taken."""
    unknown = {
        f"{name}.{param}" for name in taken if name not in TAKE_ALL for param in sent[name] - taken[name]
    }
    assert unknown == set(), "nobody takes these"
    return {f"{name}.{param}" for name in taken for param in taken[name] - sent[name]}


def test_each_parameter_of_a_method_is_offered_or_left_out_for_a_reason(world: World) -> None:
    document = world.client().call("rpc.discover")
    sent = everything_sent()
    methods = {str(method["name"]): method["params"] for method in document["methods"]}
    assert set(sent) - set(methods) == {"Open"}
    taken = {name: {str(each["name"]) for each in methods[name]} for name in sent if name != "Open"}
    wanted = {name for name in PARAMS_LEFT_OUT if not name.startswith("Open.")}
    assert differences(sent, taken) == wanted, "an argument gives each, or conftest.py says why none does"


@pytest.mark.skipif(not SCHEMAS.is_file(), reason="the types of openings are in abx's own repository")
def test_each_field_of_an_opening_is_offered_or_left_out_for_a_reason() -> None:
    schemas = json.loads(SCHEMAS.read_text(encoding="utf-8"))["$defs"]
    taken = {"Open": set(schemas["Open"]["properties"])}
    wanted = {name for name in PARAMS_LEFT_OUT if name.startswith("Open.")}
    assert differences(everything_sent(), taken) == wanted


def test_each_field_of_a_result_is_an_attribute_or_left_out_for_a_reason(world: World) -> None:
    document = world.client().call("rpc.discover")
    schemas = document["components"]["schemas"]
    sent = everything_sent()

    def types(value: Any) -> Set[str]:
        """Objects in a result, and in what is in it."""
        if isinstance(value, list):
            return set().union(*map(types, value))
        if not isinstance(value, dict):
            return set()
        name = str(value.get("$ref", "")).rpartition("/")[2]
        if "properties" not in schemas.get(name, {}):
            return types(list(value.values()))
        return {name} | (types(schemas[name]["properties"]) if name in CLASSES else set())

    given = types([method["result"] for method in document["methods"] if method["name"] in sent])
    missing = set()
    for name in given - MAPPINGS:
        made = CLASSES.get(name)
        if made is None:
            missing.add(name)
            continue
        has = set(made.__annotations__)
        for each in schemas[name]["properties"]:
            if RENAMED.get(f"{name}.{each}", each) not in {None, *has}:
                missing.add(f"{name}.{each}")
    assert missing == set(FIELDS_LEFT_OUT), "an attribute gives each, or conftest.py says why none does"
