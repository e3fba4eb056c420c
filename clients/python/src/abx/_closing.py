"""Objects that ``with`` closes."""

from types import TracebackType
from typing import Awaitable, Optional, Type, TypeVar

S = TypeVar("S", bound="Closing")
A = TypeVar("A", bound="AsyncClosing")


class Closing:
    """What is closed at the end of a ``with``, however that ends."""

    def close(self) -> None:
        """Lets go of what it holds."""
        raise NotImplementedError

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


class AsyncClosing:
    """What is closed at the end of an ``async with``, however that ends."""

    def close(self) -> Optional[Awaitable[None]]:
        """Lets go of what it holds."""
        raise NotImplementedError

    async def __aenter__(self: A) -> A:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        closed = self.close()
        if closed is not None:
            await closed
