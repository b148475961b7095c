"""What Cordwood appends to a directory that Kafka made, in this process or in one to be killed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import cordwood
from cordwood import Record, Store
from fakes.client_batches import client_batch
from interop.kafka_sample import CODECS, KafkaTruth, Place
from interop.sample_store import end_transaction, varied_records, writable

Plan = dict[Place, list[Record]]

_PRODUCER_ID = 9_000_000  # far from what the broker hands out
_COMMITTED = {("plain", 0): (41, "by cordwood")}
_TORN = b"\x00\x00\x00\x00\x00\x00\x00\x63 the beginning of a batch that never ended"


def plan_appends(truth: KafkaTruth) -> Plan:
    """Records for some partitions, with the offsets they will get."""
    first_ms = int(time.time() * 1000) - 60_000
    places = [("plain", 0), ("plain", 2), ("rolled", 0), ("shortened", 0)]
    places += [(f"codec-{codec}", 0) for codec in CODECS]
    return {
        place: [
            record._replace(offset=truth.ends[place] + n)
            for n, record in enumerate(varied_records(60, first_ms))
        ]
        for place in places
    }


def append_plan(store: Store, plan: Plan) -> None:
    for codec in CODECS:
        store.alter_topic(f"codec-{codec}", config={"compression.type": codec})
    store.alter_topic("plain", config={"index.interval.bytes": "200", "preallocate": "true"})
    for (topic, number), records in plan.items():
        log = writable(store, topic, number)
        for start in range(0, len(records), 6):
            log.append_many([r._replace(offset=-1) for r in records[start : start + 6]])
        if topic == "plain":
            continue
        log.roll()
    store.group("billing").commit(_COMMITTED)


def append_transactions(store: Store) -> list[bytes]:
    """Two transactions, the second aborted; the values of the first."""
    log = writable(store, "transactions")
    now_ms = int(time.time() * 1000)
    for sequence, is_abort in enumerate((False, True)):
        data = client_batch(
            b"aborted by cordwood" if is_abort else b"committed by cordwood",
            timestamps=[now_ms],
            producer_id=_PRODUCER_ID,
            producer_epoch=0,
            sequence=sequence,
            transactional=True,
        )
        log.batches.append_batch(data)
        end_transaction(log, _PRODUCER_ID, is_abort=is_abort, at_ms=now_ms)
    return [b"committed by cordwood"]


def append_and_be_killed(directory: Path, plan: Plan) -> None:
    """Have another process append the plan, kill it, and leave a torn batch behind."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", "from interop import our_appends; our_appends.append_for_ever()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        try:
            pickle.dump((directory, plan), writer.stdin)
            writer.stdin.flush()
            assert writer.stdout.readline() == b"appended\n"
        finally:
            writer.kill()
    assert not (directory / ".kafka_cleanshutdown").exists()
    last = max((directory / "plain-0").glob("*.log"))
    assert last.read_bytes().endswith(bytes(1000))  # written ahead
    with last.open("ab") as file:
        file.write(_TORN)


def append_for_ever() -> None:
    """The other process: append what comes on stdin, say so, and wait for the end."""
    directory, plan = pickle.load(sys.stdin.buffer)
    store = cordwood.open(directory)
    append_plan(store, plan)
    print("appended", flush=True)
    while True:
        time.sleep(60)
