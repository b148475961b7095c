"""What is sent over TLS: in order, in chunks, and the same bytes again if they were not taken."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.broker.net.sockets.tls_outbox import TlsOutbox
from cordwood.log.reading.file_range import FileRange
from cordwood.quantities import FilePosition, Offset
from cordwood.storage.files import RealFileSystem
from fakes.tls_pair import TlsPair

KIB = 1024
CHUNK = 64 * KIB


class StubbornTls:
    """Takes a write only at the attempt that `refusals` allows, as OpenSSL does: whole."""

    def __init__(self, refusals: list[bool]) -> None:
        self.refusals = refusals
        self.offered: list[bytes] = []
        self.taken = bytearray()

    def send(self, data: bytes | memoryview) -> int:
        self.offered.append(bytes(data))
        if self.refusals and self.refusals.pop(0):
            raise BlockingIOError
        self.taken += data
        return len(data)


def file_range(path: Path, content: bytes, position: int, length: int) -> FileRange:
    path.write_bytes(content)
    return FileRange(
        file=RealFileSystem().open_read(str(path)),
        position=FilePosition(position),
        length=length,
        base_offset=Offset(0),
    )


def outbox(tls: StubbornTls) -> TlsOutbox:
    return TlsOutbox(tls)  # type: ignore[arg-type]


def test_pieces_are_joined_to_chunks_of_full_records(tmp_path: Path) -> None:
    tls = StubbornTls([])
    content = bytes(range(256)) * KIB
    piece = file_range(tmp_path / "f", content, 1000, 200 * KIB)

    sent = outbox(tls).send([b"head", piece, b"tail"])

    expected = b"head" + content[1000 : 1000 + 200 * KIB] + b"tail"
    assert bytes(tls.taken) == expected
    assert sent == len(expected)
    assert [len(chunk) for chunk in tls.offered] == [CHUNK, CHUNK, CHUNK, len(expected) % CHUNK]


def test_a_chunk_that_was_not_taken_is_offered_again_unchanged(tmp_path: Path) -> None:
    tls = StubbornTls([False, True, True, False])
    waiting = outbox(tls)
    piece = file_range(tmp_path / "f", b"x" * 80 * KIB, 0, 80 * KIB)

    waiting.send([b"first", piece])
    waiting.pieces.append(b"appended meanwhile")
    waiting.send()
    waiting.send()

    assert tls.offered[1] == tls.offered[2] == tls.offered[3]
    assert bytes(tls.taken) == b"first" + b"x" * 80 * KIB + b"appended meanwhile"
    assert not waiting.pieces


@pytest.mark.parametrize("pieces", [[], [b""], [b"", b"a", b""], [b"a" * CHUNK], [b"a"] * 1000])
def test_pieces_of_any_size_are_sent_once(pieces: list[bytes]) -> None:
    tls = StubbornTls([True, False, True])
    waiting = outbox(tls)

    waiting.send(pieces)
    for _ in range(5):
        waiting.send()

    assert bytes(tls.taken) == b"".join(pieces)
    assert not waiting.pieces


def test_one_connection_does_not_keep_the_loop_busy() -> None:
    tls = StubbornTls([])
    waiting = outbox(tls)

    sent = waiting.send([b"x" * 3 * KIB * KIB])

    assert sent == KIB * KIB
    assert waiting.pieces


def test_a_file_that_ends_short_is_an_error(tmp_path: Path) -> None:
    piece = file_range(tmp_path / "f", b"x" * 10, 0, 20)

    with pytest.raises(OSError, match="ends 10 bytes short"):
        outbox(StubbornTls([])).send([piece])


# --- with OpenSSL --------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[TlsPair]:
    made = TlsPair(tmp_path)
    yield made
    made.close()


def test_a_slow_reader_gets_everything(pair: TlsPair) -> None:
    waiting = TlsOutbox(pair.broker)
    data = bytes(range(256)) * 16 * KIB
    received = bytearray()

    waiting.send([data])
    assert waiting.pieces  # the socket has taken a part
    while len(received) < len(data):
        waiting.send()
        received += pair.client_read(5000)

    assert received == data
    assert not waiting.pieces
