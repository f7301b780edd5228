"""The context manager of objects that have to be closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class ClosingContext(ABC):
    """Context manager that closes the object at the end of the block, whatever ends it."""

    @abstractmethod
    def close(self) -> None:
        """Releases what the object holds: processes, connections, files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
