"""Sessions, as programs of the older SDK use them, and the rest of their life, on a real engine."""

from __future__ import annotations

import threading
from typing import List

import pytest

from abx import (
    CommandExitError,
    EngineError,
    FileType,
    ImageNotFoundError,
    InvalidParamsError,
    Progress,
    PtySize,
    Sandbox,
    SandboxFileNotFoundError,
    SessionAlreadyExistsError,
    SessionManager,
    SessionNotFoundError,
    WrongStateError,
)
from conftest import IMAGE, World


def test_what_users_of_the_older_sdk_write(manager: SessionManager) -> None:
    sandbox = manager.start(
        "my project",
        template="base",
        timeout=600,
        metadata={"owner": "team-a"},
        envs={"TOKEN": "t"},
        image=IMAGE,
    )
    assert sandbox.id and sandbox.name == "my project"
    assert sandbox.commands.run("echo hello $TOKEN").stdout == "hello t\n"
    sandbox.files.write("/tmp/notes/a.txt", "kept")
    with pytest.raises(SessionAlreadyExistsError) as refused:
        manager.start("my project", image=IMAGE)
    assert refused.value.hint
    [listed] = manager.list_sessions()
    assert manager.list() == [listed]
    assert (listed.name, listed.status, listed.metadata) == ("my project", "running", {"owner": "team-a"})
    assert listed.sandboxId == listed.sandbox_id == sandbox.id

    manager.stop("my project", kill=False)
    assert manager.get_info("my project").status == "stopped"
    again = manager.connect("my project")
    assert again.id == sandbox.id and again.is_running()
    assert again.files.read("/tmp/notes/a.txt") == "kept"
    assert manager.get_info("my project").last_connected is not None

    manager.stop("my project", kill=True)
    assert manager.list() == []
    for asked in (manager.connect, manager.get_info, manager.stop):
        with pytest.raises(SessionNotFoundError):
            asked("my project")


def test_a_manager_with_a_directory_knows_the_sessions_of_that_directory(engine: World) -> None:
    one, two = engine.manager("/srv/one"), SessionManager(base_dir="/srv/two", client=engine.client())
    one.start("a", image=IMAGE, metadata={"k": "v"})
    assert [(each.name, each.status) for each in one.list()] == [("a", "running")]
    stored = one.store.load("a")
    assert stored is not None and stored.sandbox_id == one.get_info("a").sandbox_id
    assert two.list() == []
    with pytest.raises(SessionNotFoundError):
        two.connect("a")
    one.stop("a", kill=True)
    assert one.list() == [] and one.store.load("a") is None


def test_a_store_without_a_directory_shows_sessions_and_leaves_them_alone(manager: SessionManager) -> None:
    manager.start("a", image=IMAGE, metadata={"old": "1", "kept": "2"})
    info = manager.store.load("a")
    assert info is not None and info.status == "running"
    info.metadata = {"kept": "2", "new": "3"}
    manager.store.save(info)
    assert manager.get_info("a").metadata == {"kept": "2", "new": "3"}
    assert not manager.store.delete("a")
    assert manager.get_info("a").status == "running"


def test_a_session_is_saved_gone_back_forked_and_removed(manager: SessionManager) -> None:
    client = manager.client
    heard: List[Progress] = []
    sandbox = manager.start("a", image=IMAGE)
    sandbox.files.write("/root/state", "first")
    saved = sandbox.save(snapshot="one", note="before", on_progress=heard.append)
    assert (saved.session.status, saved.snapshot.name, saved.snapshot.note) == ("saved", "one", "before")
    assert [progress.text for progress in heard] == ["saving one"]
    sandbox.resume()
    sandbox.files.write("/root/state", "second")
    fork = sandbox.fork("b", snapshot="one")
    assert (fork.files.read("/root/state"), sandbox.files.read("/root/state")) == ("first", "second")
    sandbox.stop()
    with pytest.raises(WrongStateError):
        sandbox.pause()
    sandbox.resume(snapshot="one")
    assert sandbox.files.read("/root/state") == "first"
    assert len(client.snapshots("a")) == 2, "going back saves first what it replaces"
    assert client.rename("b", "c").name == "c"
    sandbox.set_timeout(3600)
    assert sandbox.refresh().expires_at is not None
    sandbox.pause()
    assert not sandbox.is_running()
    client.unpause("a")
    assert sandbox.is_running()
    assert (sandbox.kill(), sandbox.kill()) == (True, False)
    assert client.delete("c").name == "c"
    assert client.list() == [] and client.snapshots() == []


def test_what_becomes_of_a_session_by_itself_is_said_and_changed(manager: SessionManager) -> None:
    client = manager.client
    sandbox = manager.start("a", image=IMAGE, idle=3600, idle_action="pause", on_boot="resume", keep=1)
    said = sandbox.session
    assert (said.idle_ms, said.idle_action, said.on_boot, said.keep) == (3_600_000, "pause", "resume", 1)
    info = sandbox.get_info()
    assert (info.idleAction, info.on_boot, info.onBoot, info.keep) == ("pause", "resume", "resume", 1)
    assert said.runtime in ("init", "engine") and said.warnings == []
    first = sandbox.save(snapshot="one", keep_running=True, timeout=300)
    assert first.pruned == []
    assert first.snapshot.creator is not None and first.snapshot.creator["client"] == client.name
    assert first.snapshot.own_bytes is None or first.snapshot.own_bytes <= first.snapshot.size_bytes
    assert sandbox.save(snapshot="two", keep_running=True).pruned == ["one"]
    changed = client.update("a", idle_action="save", on_boot="stopped", keep=0)
    assert (changed.idle_ms, changed.idle_action, changed.on_boot) == (3_600_000, "save", "stopped")
    assert changed.keep in (0, None)
    with pytest.raises(InvalidParamsError):
        client.save("a", timeout=0.5)


def test_a_session_that_does_not_run_is_resumed_unless_that_is_not_wanted(manager: SessionManager) -> None:
    client = manager.client
    sandbox = manager.start("a", image=IMAGE)
    sandbox.files.write("/root/state", "kept")
    big = bytes(range(256)) * 8_000
    sandbox.files.write("/root/big", big)
    sandbox.stop()
    for refused in (
        lambda: sandbox.commands.run("true", resume=False),
        lambda: sandbox.commands.run("true", background=True, resume=False),
        lambda: sandbox.commands.run("cat", background=True, stdin=True, resume=False),
        lambda: sandbox.pty.create(resume=False),
        lambda: sandbox.pty.attach(resume=False),
        lambda: manager.connect("a", resume=False),
    ):
        with pytest.raises(WrongStateError):
            refused()
    assert sandbox.files.read("/root/state", resume=False) == "kept"
    assert sandbox.files.read("/root/big", format="bytes", resume=False) == big
    sandbox.files.write("/root/big", big[:-1], resume=False)
    assert [each.size for each in sandbox.files.list("/root", resume=False)] == [len(big) - 1, 4]
    heard: List[Progress] = []
    assert client.connect("a", on_progress=heard.append).status == "running"
    assert len(heard) >= 1 and "a" in heard[0].text
    sandbox.stop()
    assert sandbox.commands.run("cat /root/state").stdout == "kept"
    sandbox.stop()
    started = client.exec_start("a", ["cat"], input="given at once", resume=True)
    with client.exec_follow("a", started.id) as stream:
        assert b"".join(data for _, data in stream) == b"given at once"


def test_going_back_may_discard_what_it_replaces(manager: SessionManager) -> None:
    sandbox = manager.start("a", image=IMAGE)
    sandbox.files.write("/root/state", "first")
    sandbox.save(snapshot="one")
    sandbox.resume()
    sandbox.files.write("/root/state", "second")
    sandbox.stop()
    sandbox.resume("one", discard=True)
    assert sandbox.files.read("/root/state") == "first"
    assert [each.name for each in manager.client.snapshots("a")] == ["one"]
    with pytest.raises(InvalidParamsError):
        sandbox.resume(discard=True)
    assert sandbox.kill(forget=True), "one whose engine answers goes with what it has there"
    assert manager.client.snapshots() == []


def test_an_image_that_is_not_there_leaves_nothing(manager: SessionManager) -> None:
    # An engine without a registry in reach says that it failed, another that there is no such image.
    with pytest.raises((ImageNotFoundError, EngineError)):
        manager.start("a", image="localhost:1/abx-test-no-such-image:1")
    assert manager.list() == []


def test_output_of_any_length_and_any_bytes(manager: SessionManager) -> None:
    sandbox = manager.start("a", image=IMAGE)
    run = sandbox.commands.run
    data = bytes(range(256)) * 20_000
    assert run("cat", stdin=data).stdout_bytes == data
    assert run(["sh", "-c", "cat >&2; exit 7"], stdin="ä").stderr == "ä"
    assert run(["true"], stdin=data * 2).exit_code == 0, "input that is not taken holds up nothing"
    heard: List[str] = []
    result = run(
        "printf 'a\\303'; printf '\\244\\n'; echo no >&2; exit 3",
        on_stdout=heard.append,
        on_stderr=heard.append,
    )
    assert (result.exit_code, result.stdout, result.stderr, result.ok) == (3, "aä\n", "no\n", False)
    assert sorted("".join(heard)) == sorted("aä\nno\n"), "a character is not told in halves"
    assert run(["printf", "%s", "$(id) 'x' \"y\""]).stdout == "$(id) 'x' \"y\"", "words are no script"
    with pytest.raises(CommandExitError) as failed:
        run("echo why >&2; exit 9", check=True)
    assert (failed.value.exit_code, failed.value.stderr) == (9, "why\n")
    late = run("sleep 60", timeout=0.2)
    assert (late.exit_code, late.timed_out) == (124, True)
    assert run(["no-such-program"]).exit_code == 127
    assert run("pwd; echo $A; id -u", cwd="/tmp", envs={"A": "b"}, user="dev").stdout == "/tmp\nb\n1000\n"


def test_a_command_in_the_background(manager: SessionManager) -> None:
    sandbox = manager.start("a", image=IMAGE)
    commands = sandbox.commands
    handle = commands.run("echo begun; exit 4", background=True)
    ended = handle.wait()
    assert (ended.stdout, ended.exit_code) == ("begun\n", 4)
    waits = commands.run("while [ ! -e /tmp/stop ]; do sleep 0.05; done; echo out", background=True)
    assert [each.id for each in commands.list()] == [waits.id]
    sandbox.files.write("/tmp/stop", "")
    assert commands.connect(waits.id).wait().stdout == "out\n", "whoever knows the id may follow it"
    assert waits.info(timeout=60).exit_code == 0
    fed = commands.run("cat; echo end", background=True, stdin=True)
    fed.send_stdin("one\n")
    assert next(iter(fed)) == ("stdout", b"one\n")
    fed.close_stdin()
    assert fed.wait().stdout == "end\n"
    endless = commands.run("sleep 1000", background=True)
    assert endless.kill(signal=9)
    assert endless.wait().exit_code == 137


def test_files_in_every_size(manager: SessionManager) -> None:
    sandbox = manager.start("a", image=IMAGE)
    files = sandbox.files
    big = bytes(range(256)) * 20_000
    assert files.write("/tmp/new/big", big, mode=0o600).size == len(big)
    assert files.read("/tmp/new/big", format="bytes") == big
    files.write("/tmp/new/big", big[:-1])
    files.write("/tmp/new/ä b", "text")
    files.write("/tmp/new/empty", b"")
    files.write("/tmp/new/control", "\0" * 900_000)
    listed = files.list("/tmp/new")
    assert [(each.name, each.size, oct(each.mode)) for each in listed] == [
        ("big", len(big) - 1, "0o600"),
        ("control", 900_000, "0o644"),
        ("empty", 0, "0o644"),
        ("ä b", 4, "0o644"),
    ]
    assert (listed.path, listed.truncated) == ("/tmp/new", False)
    assert {each.type for each in listed} == {FileType.FILE} and listed[0].path == "/tmp/new/big"
    assert files.read("/tmp/new/empty") == "" and files.read("/tmp/new/ä b") == "text"
    with pytest.raises(FileNotFoundError):
        files.read("/tmp/none")
    with pytest.raises(SandboxFileNotFoundError):
        files.list("/tmp/none")
    if not files.exists("/bin/mv"):
        # The test image has few programs.
        sandbox.commands.run("/bin/busybox ln -s busybox /bin/mv", check=True)
    files.make_dir("/tmp/deep/er")
    files.rename("/tmp/new/ä b", "/tmp/deep/er/-x")
    assert files.exists("/tmp/deep/er/-x") and not files.exists("/tmp/new/ä b")
    files.remove("/tmp/deep")
    assert not files.exists("/tmp/deep")
    sandbox.stop()
    assert files.read("/tmp/new/big", format="bytes") == big[:-1], (
        "a session need not run for its files to be read"
    )


def test_a_terminal(manager: SessionManager) -> None:
    sandbox = manager.start("a", image=IMAGE)
    with sandbox.pty.create(cmd=["sh", "-c", "stty size; read x; stty size; exit 5"]) as pty:
        seen = b""
        while b"24 80" not in seen:
            seen += pty.read(timeout=60) or b""
        with pytest.raises(TimeoutError):
            pty.read(timeout=0)
        sandbox.pty.resize(pty.id, PtySize(rows=50, cols=132))
        sandbox.pty.send_stdin(pty.id, "\n")
        rest: List[bytes] = []
        assert pty.wait(rest.append) == 5
        assert b"50 132" in b"".join(rest)


def test_a_named_terminal_stays_when_it_is_left(manager: SessionManager) -> None:
    sandbox = manager.start("a", image=IMAGE)
    with sandbox.pty.attach("work", cmd=["sh"]) as pty:
        pty.send("X=kept\n")
        pty.send("echo is-$X\n")
        seen = b""
        while b"is-kept" not in seen:
            seen += pty.read(timeout=60) or b""
    [left] = sandbox.client.terminals("a")
    assert left.terminal == "work"
    screen = sandbox.client.terminal_peek("a", "work")
    assert any("is-kept" in line for line in screen)
    assert left.size is not None and screen.size == left.size
    assert "size=PtySize(" in repr(left)
    with sandbox.pty.attach("work") as pty:
        pty.send("echo still-$X; exit\n")
        assert b"still-kept" in b"".join(pty)


def test_threads_share_a_client(manager: SessionManager) -> None:
    sandbox = manager.start("a", image=IMAGE)
    found: List[str] = []

    def work(number: int) -> None:
        found.append(sandbox.commands.run(["echo", str(number)]).stdout)
        sandbox.client.get("a")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found, key=int) == [f"{number}\n" for number in range(16)]


def test_leaving_a_sandbox_keeps_it(manager: SessionManager) -> None:
    with manager.start("a", image=IMAGE) as sandbox:
        assert isinstance(sandbox, Sandbox)
    assert manager.get_info("a").status == "running"
