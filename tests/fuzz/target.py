"""What a fuzz target is, and the table of all there are: importing a module of targets fills it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cordwood.errors import FormatError


@dataclass(frozen=True, slots=True)
class Target:
    """`refusals` are the errors that say "this is not one of mine"."""

    name: str
    run: Callable[[bytes], None]
    seeds: Sequence[bytes]
    refusals: tuple[type[Exception], ...]

    def __call__(self, data: bytes) -> None:
        try:
            self.run(data)
        except self.refusals:
            return


TARGETS: Final[dict[str, Target]] = {}


def target(
    *seeds: bytes, refusals: tuple[type[Exception], ...] = (FormatError,)
) -> Callable[[Callable[[bytes], None]], Callable[[bytes], None]]:
    def register(function: Callable[[bytes], None]) -> Callable[[bytes], None]:
        name = function.__name__.replace("_", "-")
        TARGETS[name] = Target(name, function, seeds, refusals)
        return function

    return register
