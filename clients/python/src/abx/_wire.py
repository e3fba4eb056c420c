"""Bytes of the socket without a socket: lines of JSON, frames of raw streams, and what an answer means."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .errors import InvalidParamsError, ProtocolError, from_wire

#: The protocol that this package speaks.
PROTOCOL = 1

#: Begins a raw stream.
PREFACE = b"abx-stream/1\n"

#: Longest payload of a frame.
MAX_FRAME_BYTES = 256 * 1024

INPUT, RESIZE, SIGNAL = 1, 2, 3
STDOUT, STDERR, EXIT, ERROR = 65, 66, 67, 68

_HEADER_BYTES = 5

#: Characters to either side of one that cannot be sent, in what is said of it.
_QUOTED = 30


def line(value: Mapping[str, Any]) -> bytes:
    """One JSON text and a newline.

    Raises :class:`InvalidParamsError` for text that cannot be sent.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError as error:
        # Such as a name of a file of this machine that is not UTF-8.
        around = text[max(0, error.start - _QUOTED) : error.start + _QUOTED]
        raise InvalidParamsError(
            f"only Unicode text can be sent, and this has half a character: {around!r}"
        ) from None


def request(number: int, method: str, params: Mapping[str, Any]) -> bytes:
    """One request."""
    return line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def notification(method: str, params: Mapping[str, Any]) -> bytes:
    """One notification."""
    return line({"jsonrpc": "2.0", "method": method, "params": params})


def message(text: bytes) -> Dict[str, Any]:
    """What a line of the daemon, or a frame's payload, says."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError(f"what listens there does not speak JSON: {text[:80]!r}") from None
    if not isinstance(value, dict):
        raise ProtocolError("the daemon sent something that is no object")
    return value


def result(answer: Mapping[str, Any]) -> Any:
    """The result of an answer.

    Raises the error that the answer is.
    """
    if answer.get("error") is not None:
        raise from_wire(answer["error"])
    return answer.get("result")


def frame(kind: int, payload: bytes) -> bytes:
    """One frame; its payload has to be short enough."""
    return bytes((kind,)) + len(payload).to_bytes(4, "big") + payload


def frames(kind: int, data: bytes) -> List[bytes]:
    """As many frames as the bytes need; none for none."""
    step = MAX_FRAME_BYTES
    return [frame(kind, data[at : at + step]) for at in range(0, len(data), step)]


class LineBuffer:
    """Takes bytes as they come and gives whole lines."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> None:
        """Adds bytes."""
        self._bytes += data

    def next(self) -> Optional[bytes]:
        """The next whole line that is not blank, if it is there."""
        while True:
            end = self._bytes.find(b"\n", self._searched)
            if end < 0:
                self._searched = len(self._bytes)
                return None
            text = bytes(self._bytes[:end])
            del self._bytes[: end + 1]
            self._searched = 0
            if text.strip():
                return text

    def rest(self) -> bytes:
        """What stands behind the lines that were taken."""
        left = bytes(self._bytes)
        self._bytes.clear()
        self._searched = 0
        return left


class FrameBuffer:
    """Takes bytes as they come and gives whole frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> None:
        """Adds bytes."""
        self._bytes += data

    def next(self) -> Optional[Tuple[int, bytes]]:
        """The next whole frame, if it is there."""
        if len(self._bytes) < _HEADER_BYTES:
            return None
        length = int.from_bytes(self._bytes[1:_HEADER_BYTES], "big")
        if length > MAX_FRAME_BYTES:
            raise ProtocolError(
                f"the daemon sent a frame of {length} bytes, over the limit of {MAX_FRAME_BYTES}"
            )
        if len(self._bytes) < _HEADER_BYTES + length:
            return None
        kind = self._bytes[0]
        payload = bytes(self._bytes[_HEADER_BYTES : _HEADER_BYTES + length])
        del self._bytes[: _HEADER_BYTES + length]
        return kind, payload
