"""What a type checker says of the package, and of programs that use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

PACKAGE = Path(__file__).resolve().parents[1]

USE = """
from abx import AsyncSessionManager, CommandResult, LocalSessionStore, SessionInfo, SessionManager

def blocking(manager: SessionManager) -> None:
    sandbox = manager.start("a", template="base", timeout=600, metadata={"a": "b"}, envs={"C": "d"})
    result: CommandResult = sandbox.commands.run("true")
    code: int = sandbox.commands.run("true", background=True).wait().exit_code
    text: str = sandbox.files.read("/a")
    data: bytes = sandbox.files.read("/a", format="bytes")
    found: "SessionInfo | None" = LocalSessionStore("/srv").load("a")
    lines: str = sandbox.files.read("/a", resume=False)
    job = sandbox.commands.run("true", background=True, resume=False).id
    manager.start("a", idle=60, idle_action="pause", on_boot="resume", keep=3).resume("one", discard=True)
    sandbox.save(timeout=60).snapshot.own_bytes
    sandbox.resume("one", True)  # error
    manager.start(3)  # error
    number: int = sandbox.files.read("/a")  # error

async def asynchronous(manager: AsyncSessionManager) -> None:
    sandbox = await manager.connect("a")
    text: str = (await sandbox.commands.run("true")).stdout
    sandbox.kill()  # error
"""


def mypy(*args: str) -> "subprocess.CompletedProcess[str]":
    """Runs mypy to its end."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(PACKAGE / "pyproject.toml"), *args]
    return subprocess.run(
        command, cwd=PACKAGE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, text=True
    )


def test_the_package_and_its_tests_are_typed_strictly(tmp_path: Path) -> None:
    done = mypy("--cache-dir", str(tmp_path))
    assert done.returncode == 0, done.stdout


def test_programs_that_use_it_are_checked(tmp_path: Path) -> None:
    program = tmp_path / "use.py"
    program.write_text(USE)
    done = mypy("--cache-dir", str(tmp_path / "cache"), str(program))
    wrong = {number for number, line in enumerate(USE.splitlines(), 1) if line.endswith("# error")}
    told = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert told == wrong, done.stdout


def test_the_code_is_formatted_and_has_no_lint() -> None:
    pytest.importorskip("ruff")
    for args in (["format", "--check"], ["check"]):
        command = [sys.executable, "-m", "ruff", *args, "--no-cache", "."]
        done = subprocess.run(
            command, cwd=PACKAGE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, text=True
        )
        assert done.returncode == 0, done.stdout
