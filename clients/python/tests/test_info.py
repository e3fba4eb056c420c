"""Descriptions of sessions: two spellings, files of the older SDK, and stores."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Dict

import pytest

from abx import (
    Client,
    InvalidNameError,
    LocalSessionStore,
    SessionConfig,
    SessionInfo,
    SessionManager,
    SessionNotFoundError,
)
from abx.models import Session, format_time, parse_time
from conftest import World

STORED: Dict[str, Any] = {
    "sessionId": "",
    "name": "dev env",
    "sandboxId": "sbx-00aa11",
    "template": "python-3.12",
    "apiUrl": "http://127.0.0.1:49983",
    "provider": "local",
    "domain": "",
    "envdAccessToken": "tok-not-a-real-one",
    "status": "stopped",
    "createdAt": "2026-03-04T08:15:30+08:00",
    "lastConnected": None,
    "metadata": {"n": 3},
    "config": {
        "name": "dev env",
        "sandbox_template": "python-3.12",
        "ttl": 86400,
        "envs": {"LANG": "C.UTF-8"},
    },
    "unknownField": {"a": [1, 2]},
}


def test_a_session_is_read_and_written_under_either_spelling() -> None:
    info = SessionInfo.model_validate(STORED)
    assert (info.sandbox_id, info.sandboxId, info.id) == ("sbx-00aa11",) * 3
    assert info.created_at == datetime(2026, 3, 4, 0, 15, 30, tzinfo=timezone.utc)
    assert info.config is not None and info.config.envs == {"LANG": "C.UTF-8"}
    assert info.metadata == {"n": "3"}, "a value that is not text becomes its JSON text"
    assert info.extra == {"unknownField": {"a": [1, 2]}}
    written = info.to_dict()
    assert written["sandboxId"] == "sbx-00aa11" and written["createdAt"] == "2026-03-04T00:15:30.000Z"
    assert written["config"]["sandbox_template"] == "python-3.12"
    assert written["unknownField"] == {"a": [1, 2]}
    assert SessionInfo.model_validate(written) == info
    assert SessionInfo.model_validate_json(info.model_dump_json()) == info
    snake = SessionInfo.model_validate(
        {"name": "a", "sandbox_id": "s", "last_connected": "2026-03-04 08:15:30"}
    )
    assert snake == SessionInfo(
        name="a", sandboxId="s", lastConnected="2026-03-04T08:15:30Z", created_at=snake.created_at
    )
    assert "tok-not-a-real-one" not in repr(info), "a token is not shown by accident"
    assert SessionConfig(sandboxTemplate="x").sandbox_template == "x"
    with pytest.raises(AttributeError):
        getattr(info, "sandboxid")  # noqa: B009
    for wrong in ({"sandboxId": "x"}, {"name": ""}, {"name": "a", "createdAt": "yesterday"}, ["name"]):
        with pytest.raises((ValueError, TypeError)):
            SessionInfo.model_validate(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["2026-03-04T08:15:30.25Z", "2026-03-04 08:15:30.250", "2026-03-04T08:15:30.250000000+00:00"],
)
def test_times_are_read_with_any_number_of_digits(text: str) -> None:
    time = parse_time(text)
    assert time == datetime(2026, 3, 4, 8, 15, 30, 250_000, timezone.utc)
    assert format_time(time) == "2026-03-04T08:15:30.250Z"
    assert time is not None and format_time(time.astimezone(timezone(timedelta(hours=8)))) == format_time(
        time
    )


def test_a_store_keeps_all_of_a_description(world: World) -> None:
    store = LocalSessionStore(client=world.client())
    info = SessionInfo.model_validate(STORED)
    store.save(info)
    loaded = store.load("dev env")
    assert loaded == info
    assert loaded is not None and loaded.envd_access_token == "tok-not-a-real-one"
    listed = store.list_all()
    assert [each.name for each in listed] == ["dev env"]
    assert listed[0].envd_access_token == "", "lists hold no secrets"
    info.status = "running"
    store.save(info)
    assert store.load("dev env") == info
    assert store.exists("dev env") and not store.exists("other")
    assert (store.delete("dev env"), store.delete("dev env")) == (True, False)
    assert store.load("dev env") is None
    with pytest.raises(InvalidNameError):
        store.save(SessionInfo("../../evil"))


def test_each_directory_is_a_namespace_of_its_own(world: World) -> None:
    client = world.client()
    stores = [LocalSessionStore(base, client=client) for base in (None, "/srv/one", "/srv/two")]
    for number, store in enumerate(stores):
        store.save(SessionInfo("数据 会议", sandbox_id=f"sbx-{number}"))
    found = [store.load("数据 会议") for store in stores]
    assert [each and each.sandbox_id for each in found] == ["sbx-0", "sbx-1", "sbx-2"]
    assert [[each.name for each in store.list_all()] for store in stores] == [["数据 会议"]] * 3
    assert stores[1].delete("数据 会议")
    assert [len(store.list_all()) for store in stores] == [1, 0, 1]
    again = LocalSessionStore("/srv/../srv/two/", client=client)
    assert again.load("数据 会议") == found[2], "one directory is one store, however it is spelled"
    old = LocalSessionStore("~/.abx/sessions", client=client)
    assert old.namespace is None, "where the older SDK kept its sessions is the table itself"


def test_files_of_the_older_sdk_are_taken_over_and_left_as_they_are(world: World) -> None:
    directory = world.directory / "old"
    directory.mkdir()
    (directory / "dev_env.json").write_text(json.dumps(STORED), encoding="utf-8")
    (directory / "bom.json").write_text(
        '\ufeff{"name":"bom","sandboxId":"b","metadata":{}}', encoding="utf-8"
    )
    (directory / "torn.json").write_text('{"name": "torn", "sand')
    (directory / "nul.json").write_bytes(b"\0" * 100)
    (directory / "latin1.json").write_bytes(b'{"name":"caf\xe9"}')
    (directory / "evil.json").write_text('{"name":"../../evil","metadata":{}}')
    (directory / "dev_env.json.lock").write_text("")
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    store = LocalSessionStore(directory, client=world.client())
    done = store.import_files()
    assert sorted(done.names) == ["bom", "dev env"]
    assert sorted(done.problems) == ["../../evil", "latin1.json", "nul.json", "torn.json"]
    assert store.load("dev env") == SessionInfo.model_validate(STORED)
    assert store.import_files().names == [], "what is there already wins"
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


COMPAT = Path(__file__).resolve().parents[3] / "tests" / "compat" / "import" / "agent-sandbox"


@pytest.mark.skipif(not COMPAT.is_dir(), reason="the samples are in abx's own repository")
def test_the_samples_of_the_older_sdk_are_read_as_abx_import_reads_them(world: World) -> None:
    store = LocalSessionStore(COMPAT, client=world.client())
    done = store.import_files()
    assert sorted(done.names) == sorted(
        ["my-project", "dev env", "数据-会议", "snake", "no-sandbox", "another.name", "bom", "future"]
    )
    assert len(done.problems) == 7
    snake = store.load("snake")
    assert snake is not None and snake.last_connected is not None and snake.sandboxId == "sbx-s1"


def test_a_row_that_was_imported_is_found_by_the_manager(world: World) -> None:
    store = LocalSessionStore(client=world.client())
    store.save(SessionInfo.model_validate(STORED))
    manager = SessionManager(client=Client(program=world.program))
    assert manager.get_info("dev env").sandbox_id == "sbx-00aa11"
    assert [each.name for each in manager.list()] == ["dev env"]
    manager.stop("dev env", kill=True)
    with pytest.raises(SessionNotFoundError):
        manager.get_info("dev env")


def test_a_datetime_without_a_zone_is_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EET-02:00")
    time.tzset()
    try:
        info = SessionInfo("a", created_at=datetime(2026, 3, 4, 10, 0))
        assert info.created_at == datetime(2026, 3, 4, 8, 0, tzinfo=timezone.utc)
        info.created_at = datetime(2026, 3, 4, 11, 0)
        assert info.to_dict()["createdAt"] == "2026-03-04T09:00:00.000Z"
        # Text is what a daemon wrote, or a file: in UTC.
        assert SessionInfo("a", created_at="2026-03-04T10:00:00").created_at.hour == 10
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_the_daemon_adds_is_spelled_like_the_fields() -> None:
    ours = Session.from_wire(
        {
            "id": "1",
            "name": "a",
            "status": "running",
            "expires_at": None,
            "last_active": "2026-03-04T10:00:00.000Z",
            "exec_count": 2,
            "idle_at": "2026-03-04T11:00:00.000Z",
            "busy": ["exec"],
        }
    )
    info = SessionInfo.from_session(ours)
    assert (info.expires_at, info.expiresAt, info.exec_count, info.execCount) == (None, None, 2, 2)
    assert (info.idle_at, info.idleAt, info.busy) == ("2026-03-04T11:00:00.000Z",) * 2 + (["exec"],)
    assert (info.on_boot, info.onBoot, info.keep, info.idle_action, info.idleAction) == (None,) * 5
    for by_alias in (True, False):
        dumped = info.model_dump(by_alias=by_alias)
        assert dumped["expiresAt" if by_alias else "expires_at"] is None
        assert dumped["execCount" if by_alias else "exec_count"] == 2
        again = SessionInfo.model_validate(dumped)
        assert again == info and again.extra == info.extra
        assert SessionInfo(**dumped) == info
    assert "_" not in "".join(info.model_dump(by_alias=True))
    # A store keeps descriptions, not what the daemon knows better.
    assert not {"expiresAt", "expires_at", "execCount", "exec_count"} & set(info.to_row(None))
    # What is known to nobody stays as it is, and a row that says nothing of ours has nothing of it.
    assert SessionInfo("b", not_ours=1).model_dump(by_alias=True)["not_ours"] == 1
    with pytest.raises(AttributeError):
        print(SessionInfo("b").expires_at)
