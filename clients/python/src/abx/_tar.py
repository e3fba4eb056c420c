"""Copies of one file, which travel as tar streams."""

from __future__ import annotations

import io
import os
import tarfile
from typing import Any, Mapping, Optional, Tuple

from ._calls import Path
from ._exchange import opening
from .errors import CommandExitError, SandboxFileNotFoundError
from .models import Json


def copy_out(session: str, path: Path, resume: Optional[bool]) -> Json:
    """The opening of a copy of one file out of a sandbox."""
    copy = {"direction": "out", "path": os.fspath(path), "follow": True}
    return opening(session, copy=copy, resume=resume)


def copy_in(session: str, path: str, resume: Optional[bool]) -> Json:
    """The opening of a copy of one file into a sandbox."""
    return opening(session, copy={"direction": "in", "path": path, "follow": True}, resume=resume)


def unpack(data: bytes, path: Path) -> bytes:
    """The content of the only file of a tar stream."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                return content.read()
    raise SandboxFileNotFoundError(f"{os.fspath(path)} is no file")


def pack(place: Mapping[str, Any], data: bytes, mode: int) -> bytes:
    """A tar stream of one file that goes where the daemon says."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo(f"{place.get('prefix') or ''}{place.get('name')}")
        member.size, member.mode = len(data), mode
        owner = place.get("owner") or {}
        member.uid, member.gid = int(owner.get("uid", 0)), int(owner.get("gid", 0))
        archive.addfile(member, io.BytesIO(data))
    return held.getvalue()


def finished(ended: Tuple[int, Optional[str]]) -> None:
    """Raises where a copy did not end well."""
    if ended[0] != 0:
        raise CommandExitError(ended[0], "", "", ended[1])
