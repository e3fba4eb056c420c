"""What a command writes and an operation tells, put together and passed on."""

from __future__ import annotations

import codecs
from typing import Callable, Dict, Generic, List, Optional, Tuple, TypeVar

from .errors import CommandExitError
from .models import CommandResult, Json, Progress

OnText = Callable[[str], None]
OnProgress = Callable[[Progress], None]

Told = TypeVar("Told")


def progress(message: Json, op: Optional[str]) -> Optional[Progress]:
    """The progress of an operation that a notification tells, if it does."""
    params = message.get("params")
    if message.get("method") != "event" or not isinstance(params, dict) or op is None:
        return None
    data = params.get("data")
    named = params.get("op", data.get("op") if isinstance(data, dict) else None)
    if params.get("kind") != "progress" or named != op:
        return None
    return Progress.from_wire(params)


class Collector(Generic[Told]):
    """Puts together what a command writes, and passes it on as text."""

    def __init__(self, on_stdout: Optional[Told], on_stderr: Optional[Told]) -> None:
        self._told = {"stdout": on_stdout, "stderr": on_stderr}
        self._parts: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {name: decoder("replace") for name in self._parts}

    def add(self, name: str, data: bytes, final: bool = False) -> Tuple[Optional[Told], str]:
        """Takes a piece, and gives whom to tell of it and what."""
        self._parts[name].append(data)
        told = self._told[name]
        return told, self._decoders[name].decode(data, final) if told else ""

    def end(self) -> List[Tuple[Optional[Told], str]]:
        """What is left to tell."""
        return [self.add(name, b"", final=True) for name in self._parts]

    def result(
        self, ended: Tuple[int, Optional[str]], id: str, lost_bytes: int, check: bool
    ) -> CommandResult:
        """The whole; raises :class:`CommandExitError` where it was to succeed and did not."""
        stdout, stderr = (b"".join(self._parts[name]) for name in ("stdout", "stderr"))
        result = CommandResult(ended[0], stdout, stderr, ended[1], id, lost_bytes)
        if check and not result.ok:
            raise CommandExitError(result.exit_code, result.stdout, result.stderr, result.error)
        return result
