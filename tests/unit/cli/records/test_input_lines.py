"""Lines from files and pipes."""

import io
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cli.records import input_lines
from cordwood.cli.records.input_lines import InputLines, LineBlock
from cordwood.errors import LimitExceededError


class Portions(io.BytesIO):
    """Hands out what it has in pieces of a given size."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(data)
        self._size = size

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self._size)


def lines_of(stream: io.BytesIO) -> list[bytes]:
    return [line for block in InputLines(stream).blocks() for line in block.lines]


@given(
    lines=st.lists(st.text(alphabet="ab\r", max_size=5).map(str.encode)),
    size=st.integers(1, 7),
    ends_in_newline=st.booleans(),
)
def test_lines_are_the_same_in_whatever_portions_they_come(
    lines: list[bytes], size: int, ends_in_newline: bool
) -> None:
    data = b"\n".join(lines) + (b"\n" if ends_in_newline and lines else b"")
    whole = data.split(b"\n")
    if not whole[-1]:
        whole.pop()

    assert lines_of(Portions(data, size)) == [line.removesuffix(b"\r") for line in whole]


def test_lines_are_counted_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_lines, "BLOCK_BYTES", 4)
    counted: list[int] = []

    lines = InputLines(Portions(b"a\nb\nc\nd\ne", 4), advance=counted.append)

    assert list(lines.blocks()) == [
        LineBlock(1, [b"a", b"b"]),
        LineBlock(3, [b"c", b"d"]),
        LineBlock(5, [b"e"]),
    ]
    assert sum(counted) == 9


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_lines, "LINE_BYTES_MAX", 10)

    with pytest.raises(LimitExceededError, match="a line of 12 exceeds the limit of 10"):
        lines_of(Portions(b"x" * 100, 3))


def test_a_pipe_gives_what_it_has_and_others_have_their_turn_meanwhile() -> None:
    reader, writer = os.pipe()
    was_idle = threading.Event()
    with open(reader, "rb", buffering=0) as stream:
        blocks = InputLines(stream, idle=was_idle.set).blocks()

        os.write(writer, b"one\ntw")
        first = next(blocks)

        def finish() -> None:
            was_idle.wait(60)
            os.write(writer, b"o\n")
            os.close(writer)

        thread = threading.Thread(target=finish)
        thread.start()
        rest = list(blocks)
        thread.join()

    assert first == LineBlock(1, [b"one"])
    assert rest == [LineBlock(2, [b"two"])]
    assert was_idle.is_set()
