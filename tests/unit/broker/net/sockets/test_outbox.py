"""What is still to be sent: in order, as far as the socket takes it, files without a copy."""

import socket
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from cordwood.broker.net.sockets.outbox import Outbox
from cordwood.log.reading.file_range import FileRange
from cordwood.quantities import MIB, FilePosition, Offset
from cordwood.storage.files import RealFileSystem


class Line:
    """A connection with both its ends, and an outbox at one."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        for end in (self.ours, self.theirs):
            end.setblocking(False)
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        self.outbox = Outbox(self.ours)
        self.received = bytearray()

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()

    def receive(self) -> None:
        """Take what is there now."""
        try:
            while part := self.theirs.recv(MIB):
                self.received += part
        except BlockingIOError:
            return

    def send_all(self) -> None:
        while self.outbox.pieces:
            self.outbox.send()
            self.receive()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.close()


def file_range(path: Path, content: bytes, position: int, length: int) -> FileRange:
    path.write_bytes(content)
    return FileRange(
        file=RealFileSystem().open_read(str(path)),
        position=FilePosition(position),
        length=length,
        base_offset=Offset(0),
    )


def test_pieces_go_out_in_the_order_they_came(line: Line, tmp_path: Path) -> None:
    content = bytes(range(256)) * 2000

    line.outbox.pieces.append(b"head")
    line.outbox.pieces.append(file_range(tmp_path / "a", content, 100, 300_000))
    line.outbox.pieces.append(b"middle")
    line.outbox.pieces.append(file_range(tmp_path / "b", content, 0, 10))
    line.outbox.pieces.append(b"tail")
    line.send_all()

    expected = b"head" + content[100:300_100] + b"middle" + content[:10] + b"tail"
    assert bytes(line.received) == expected


def test_what_the_socket_does_not_take_stays_and_goes_on_where_it_was_left(line: Line) -> None:
    large = bytes(range(256)) * 10_000
    line.outbox.pieces.append(large)

    first = line.outbox.send()

    assert 0 < first < len(large)
    assert line.outbox.send() == 0
    assert line.outbox.pieces
    line.send_all()
    assert bytes(line.received) == large
    assert not line.outbox.pieces


def test_an_empty_outbox_sends_nothing(line: Line) -> None:
    assert not line.outbox.pieces
    assert line.outbox.send() == 0


def test_a_file_that_ends_before_it_should_is_an_error(line: Line, tmp_path: Path) -> None:
    line.outbox.pieces.append(file_range(tmp_path / "short", b"x" * 50, 0, 100))

    with pytest.raises(OSError, match="50 bytes short"):
        line.send_all()


def test_a_file_that_was_deleted_is_sent_all_the_same(line: Line, tmp_path: Path) -> None:
    line.outbox.pieces.append(file_range(tmp_path / "gone", b"still here", 6, 4))
    (tmp_path / "gone").unlink()

    line.send_all()

    assert bytes(line.received) == b"here"


def test_a_broken_connection_is_an_error(line: Line) -> None:
    line.outbox.pieces.append(b"x")
    line.theirs.close()

    with pytest.raises(OSError, match="Broken pipe"):
        line.outbox.send()


def test_a_small_file_goes_out_in_one_call_with_what_is_around_it(
    line: Line, tmp_path: Path
) -> None:
    sends = mock.Mock(side_effect=line.ours.send)
    outbox = Outbox(mock.Mock(wraps=line.ours, send=sends))
    outbox.pieces.append(b"head ")
    outbox.pieces.append(file_range(tmp_path / "a", b"a small record", 2, 5))
    outbox.pieces.append(b" tail")
    outbox.pieces.append(file_range(tmp_path / "b", bytes(100_000), 0, 100_000))

    outbox.send()
    line.receive()

    assert [bytes(call.args[0]) for call in sends.call_args_list] == [b"head small tail"]
    assert line.received.startswith(b"head small tail\0")


def test_a_small_file_that_ends_before_it_should_is_an_error_too(
    line: Line, tmp_path: Path
) -> None:
    line.outbox.pieces.append(b"head")
    line.outbox.pieces.append(file_range(tmp_path / "short", b"x" * 50, 0, 100))

    with pytest.raises(OSError, match="50 bytes short"):
        line.send_all()
