"""What a terminal shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping

from .models import PtySize


@dataclass(frozen=True)
class Cursor:
    """A cursor; ``row`` and ``column`` count from 0, on the screen without its scrollback."""

    row: int
    column: int
    visible: bool


class Screen(List[str]):
    """The lines that a terminal shows, without blanks at their ends, and how it stands."""

    #: How many of the lines, the first ones, are scrollback.
    scrollback: int = 0
    size: PtySize = PtySize()
    cursor: Cursor = Cursor(0, 0, True)
    #: The title that the program set.
    title: str = ""
    #: Whether a program has the alternate screen.
    alternate: bool = False

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "Screen":
        """As the daemon gives it."""
        made = cls(str(line) for line in data.get("lines") or [])
        cursor = data.get("cursor") or {}
        made.scrollback = int(data.get("scrollback") or 0)
        made.size = PtySize.from_wire(data.get("size") or {})
        made.cursor = Cursor(
            int(cursor.get("row") or 0), int(cursor.get("column") or 0), bool(cursor.get("visible"))
        )
        made.title = str(data.get("title") or "")
        made.alternate = bool(data.get("alternate"))
        return made
