"""Ends a call of Cordwood with `KeyboardInterrupt`, at each place where a signal can do that.

CPython runs the handlers of signals in the main thread, and only at certain instructions: after a
call, at the start of a function, and when a loop goes back. `places` counts how often a call passes
one of these, and the start of a line, in a file of Cordwood; `interrupt` raises at one of them.

An exception of a trace function counts as raised by the *next* instruction. Where that one has
another handler than the call before it, a signal would be handled differently, so such a place is
left out: the end of a `with` statement, above all. Compiled kernels have no such places: a signal
waits until they return.
"""

import dis
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import cordwood

_SOURCE = str(Path(cordwood.__file__).parent)
_CHECKED = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW", "RESUME", "JUMP_BACKWARD", "FOR_ITER"})


class _Instructions:
    """The instructions of a function: their names, and which handler has each."""

    def __init__(self, code: CodeType) -> None:
        self.names = {found.offset: found.opname for found in dis.get_instructions(code)}
        self._entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
        self._order = sorted(self.names)

    def handler(self, offset: int) -> int | None:
        for entry in self._entries:
            if entry.start <= offset < entry.end:
                return int(entry.target)
        return None

    def is_interruptible(self, before: int, here: int) -> bool:
        """Whether a signal can be handled after `before`, as if `here` had raised."""
        return (
            self.names.get(before) in _CHECKED
            and self.handler(before) == self.handler(here)
            and not self.is_unreachable(here)
        )

    def is_unreachable(self, offset: int) -> bool:
        """Whether only a trace can raise here: at a `try`, and on the way to call `__exit__`."""
        if self.names[offset] == "NOP":
            return True
        at = self._order.index(offset)
        names = [self.names[found] for found in self._order[at : at + 8]]
        for first in range(len(names) - 3):
            if names[first : first + 3] == ["LOAD_CONST"] * 3:
                return names[first + 3] in ("PRECALL", "CALL")
            if not names[first].startswith(("LOAD", "SWAP", "NOP", "COPY", "PUSH")):
                return False
        return False


@cache
def _instructions(code: CodeType) -> _Instructions:
    return _Instructions(code)


@dataclass
class Passed:
    """How a traced call went: the places it passed, and the one where it was interrupted."""

    count: int = 0
    interrupted_at: str | None = None
    _chosen: int = field(default=0, repr=False)

    def pass_by(self, frame: FrameType) -> None:
        self.count += 1
        if self.count == self._chosen:
            code = frame.f_code
            file = code.co_filename.removeprefix(_SOURCE + "/")
            self.interrupted_at = f"{file}:{frame.f_lineno} in {code.co_qualname}"
            raise KeyboardInterrupt


def places(action: Callable[[], object]) -> int:
    """How many places `action` passes, in this thread."""
    passed = Passed()
    _trace(action, passed)
    return passed.count


def interrupt(action: Callable[[], object], place: int) -> str | None:
    """Run `action` and interrupt it at that place, from 1 on; return where that was.

    None: it did not come so far, or the interrupt did not reach the caller.
    """
    passed = Passed(_chosen=place)
    try:
        _trace(action, passed)
    except KeyboardInterrupt:
        assert passed.interrupted_at is not None
    return passed.interrupted_at


def _trace(action: Callable[[], object], passed: Passed) -> None:
    def on_call(frame: FrameType, event: str, _arg: object) -> object:
        if not frame.f_code.co_filename.startswith(_SOURCE) or _is_in_finalizer(frame):
            return None
        frame.f_trace_opcodes = True
        return _tracer_of(frame, passed)

    before = sys.gettrace()
    sys.settrace(on_call)  # type: ignore[arg-type]
    try:
        action()
    finally:
        sys.settrace(before)


def _tracer_of(frame: FrameType, passed: Passed) -> Callable[..., object]:
    known = _instructions(frame.f_code)
    last: int | None = None

    def tracer(frame: FrameType, event: str, _arg: object) -> object:
        nonlocal last
        here = frame.f_lasti
        if event == "line" and not known.is_unreachable(here):
            passed.pass_by(frame)
        elif event == "opcode":
            before, last = last, here
            if before is not None and known.is_interruptible(before, here):
                passed.pass_by(frame)
        return tracer

    return tracer


def _is_in_finalizer(frame: FrameType | None) -> bool:
    """An exception in `__del__` goes nowhere, and when it runs depends on the garbage."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
