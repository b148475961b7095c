from __future__ import annotations

from pathlib import Path

import pytest

from bench.kafka_cleaner import batches_of, parse_cleaning
from cordwood.format.batch_builder import BatchStyle, build_batches
from cordwood.format.batch_header import decode_batch_header
from cordwood.quantities import TimestampMs

_SAID = """\
[2026-11-16 02:57:01,100] INFO Cleaner 0: Cleaning log dirty-1-0 (cleaning prior to x) (k.log)
[2026-11-16 02:57:02,100] INFO [kafka-log-cleaner-thread-0]:
\tLog cleaner thread 0 cleaned log dirty-1-0 (dirty section = [0, 1,509,840])
\t1,181.5 MB of log processed in 4.6 seconds (256.8 MB/sec).
\tIndexed 1,181.4 MB in 2.0 seconds (590.7 Mb/sec, 43.5% of total time)
\tBuffer utilization: 2.6%
\tCleaned 1,181.5 MB in 2.6 seconds (454.4 Mb/sec, 56.5% of total time)
\tStart size: 1,181.5 MB (1,509,840 messages)
\tEnd size: 18.4 MB (150,984 messages)
\t98.4% size reduction (90.0% fewer messages)
 (org.apache.kafka.storage.internals.log.LogCleaner)
"""


def test_a_pass_of_the_cleaner_is_read_out_of_what_kafka_logs() -> None:
    cleaning = parse_cleaning(_SAID, "dirty-1-0")

    assert cleaning is not None
    assert cleaning.size_bytes == 1181.5 * 2**20
    assert cleaning.records == 1_509_840
    assert cleaning.seconds == pytest.approx(4.6, abs=0.01)


def test_a_log_that_was_not_cleaned_yet_has_none() -> None:
    assert parse_cleaning(_SAID, "dirty-1-1") is None
    assert parse_cleaning("", "dirty-1-0") is None


def test_batches_of_a_log_are_sent_as_a_producer_sends_them(tmp_path: Path) -> None:
    pairs = [(b"key", bytes(100))] * 50
    style = BatchStyle(bytes_max=4096)
    built = build_batches(pairs, TimestampMs(1), style, target_bytes=2048)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join((7).to_bytes(8, "big") + bytes(batch.data)[8:] for batch in built))

    batches = list(batches_of([path]))

    headers = [decode_batch_header(batch) for batch in batches]
    assert len(batches) > 1
    assert {header.base_offset for header in headers} == {0}
    assert sum(header.record_count for header in headers) == 50
