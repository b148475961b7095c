"""The peers of the library keep every record in order, and leave no files behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.embedded_peers import (
    PEER_LOGS,
    LmdbLog,
    PeerLog,
    append_latency,
    append_many_seconds,
    peer_log,
    scan_rate,
    synced_appends_per_second,
)

LISTS = [[b"%d" % number] * 7 for number in range(20)]


@pytest.mark.parametrize("kind", PEER_LOGS.values(), ids=PEER_LOGS)
def test_all_that_was_appended_is_read(kind: type[PeerLog], tmp_path: Path) -> None:
    with peer_log(kind, tmp_path / "log") as log:
        for values in LISTS:
            log.append_many(values)
        log.append(b"the last")

        assert log.scan() == 141


@pytest.mark.parametrize("kind", PEER_LOGS.values(), ids=PEER_LOGS)
def test_measuring_leaves_no_files(kind: type[PeerLog], tmp_path: Path) -> None:
    assert append_many_seconds(kind, tmp_path / "log", LISTS) > 0
    assert append_latency(kind, tmp_path / "log", b"value", 20).p50_us > 0
    assert scan_rate(kind, tmp_path / "log", LISTS)() > 0

    assert list(tmp_path.iterdir()) == []


def test_lmdb_reads_at_an_offset_and_syncs_if_told(tmp_path: Path) -> None:
    with peer_log(LmdbLog, tmp_path / "log") as log:
        assert isinstance(log, LmdbLog)
        log.append_many([b"0", b"1"])

        log.read(1)
        with pytest.raises(AssertionError):
            log.read(2)

    assert synced_appends_per_second(tmp_path / "log", b"value", 0.01) > 0
