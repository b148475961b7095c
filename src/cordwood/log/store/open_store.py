"""What every kind of store shares: it is open until it is closed, at the latest by `with`."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from cordwood.errors import LogClosedError


class OpenStore(ABC):
    """Something that holds logs open. Once closed it stays so, and refuses to be used."""

    _is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @abstractmethod
    def close(self) -> None:
        """Let go of all files. Safe to repeat."""

    @abstractmethod
    def _described(self) -> str:
        """What is closed, for the message that says so."""

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosedError(self._described())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
