"""A power cut takes the end of a segment; the ones behind it go, and the log goes on there."""

from __future__ import annotations

from random import Random

import pytest

from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import IdleFlusher, log_of, new_log, open_store


@pytest.mark.parametrize("seed", range(12))
def test_a_segment_whose_successor_is_gone_can_be_read_beyond_where_that_one_began(
    seed: int,
) -> None:
    fs = SimulatedFileSystem()
    store, log = new_log(fs, flusher=IdleFlusher())
    log.append(b"durable")
    transaction = store.transaction("writer")
    transaction.__enter__()
    for _ in range(3):
        transaction.append(log.topic, b"not synced", partition=0)
    log.roll()

    with open_store(fs.crash(Random(seed))) as again:
        recovered = log_of(again)
        count = recovered.end_offset
        for _ in range(6):
            recovered.append(b"later")

        values = [record.value for record in recovered.read(start=count)]
        assert values == [b"later"] * 6
