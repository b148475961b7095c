"""A deletion is durable, also in a log of which nothing else is."""

import random

import pytest

from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, new_log, open_store


@pytest.mark.parametrize("seed", range(20))
def test_what_was_deleted_stays_deleted_after_a_power_cut_in_a_log_that_was_never_synced(
    seed: int,
) -> None:
    fs = SimulatedFileSystem()
    _store, log = new_log(fs, {"durability": "os"})
    log.append(b"secret")
    log.delete_before(1)

    recovered = log_of(open_store(fs.crash(random.Random(seed))))

    assert (recovered.start_offset, recovered.end_offset) == (1, 1)
    assert recovered.append(b"next").offset == 1
