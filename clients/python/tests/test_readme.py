"""What the README shows does run, as it stands, one program after another in one home."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from abx import Client
from conftest import LEFT_OUT, World, docker

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_programs_of_the_readme_run(engine: World) -> None:
    if not docker("images", "-q", "debian:stable-slim"):
        # Elsewhere the engine pulls it.
        assert docker("pull", "debian:stable-slim")
    programs = re.findall(
        r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(programs) == 7
    # As a reader has it: abx on PATH.
    path = os.pathsep.join([str(Path(engine.program).parent), os.environ["PATH"]])
    printed = []
    for program in programs:
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", "-c", program],
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            text=True,
        )
        assert done.returncode == 0, program + done.stdout
        printed.append(done.stdout)
    assert printed[0] == "hello from Linux\n\n"
    assert "remember this\n" in printed[1] and "INPUT" in printed[1] and "True" in printed[1]
    assert printed[2] == "['0\\n', '1\\n', '2\\n']\n"
    assert printed[3].startswith("save ") and " resume 5\n" in printed[3]
    assert "50 132" in printed[4]
    assert "session.deleted watched" in printed[5]
    assert "stdout b'\\x00\\xff'" in printed[6]
    assert engine.client().list() == []


def test_the_readme_names_every_method_of_a_client_and_every_call_without_one() -> None:
    text = README.read_text(encoding="utf-8")
    section = text[text.index("## Bytes, and everything else") : text.index("## When something goes wrong")]
    methods = [name for name in vars(Client) if not name.startswith("_") and name != "call"]
    assert [name for name in methods if f"`{name}`" not in section] == []
    assert [name for name in sorted(LEFT_OUT) if f"`{name}`" not in section] == []
    assert 'client.call("daemon.shutdown")' in section
