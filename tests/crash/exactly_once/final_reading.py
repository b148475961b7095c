"""Reads what is there at the end of a run: over the network, and from the files.

Before that every id is taken over by another producer, which aborts what its last one left open.
So a transaction that is open afterwards is one that nobody will ever end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import cordwood
from cordwood.protocol.api_catalog import ApiKey
from crash.exactly_once.history import GroupPlace, Outcome, SymptomError
from crash.exactly_once.raw_producer import (
    FETCH,
    Link,
    RawProducer,
    committed_position,
    read_committed,
)
from crash.exactly_once.workload import PARTITIONS, SOURCE, TOPIC
from wire.raw_client import RawClient
from wire.record_requests import Wanted, fetch_body, receive_fetched

_SETTLE_S: Final = 20.0  # for all partitions: their markers are written at the same time


def read_outcome(
    address: str,
    data: Path,
    *,
    transactional_ids: Sequence[str],
    groups: Sequence[str],
    stop_broker: Callable[[], None],
) -> Outcome:
    link = Link(address, "final", lambda: False)
    for transactional_id in transactional_ids:
        RawProducer(link, transactional_id).init()
    deadline_s = time.monotonic() + _SETTLE_S
    ends = {partition: _ends(link, partition, deadline_s) for partition in range(PARTITIONS)}
    hanging = tuple(number for number, (stable, end) in ends.items() if stable < end)
    committed = {partition: _all_committed(link, partition) for partition in ends}
    positions: dict[GroupPlace, int] = {
        (group, SOURCE): committed_position(link, group, TOPIC, SOURCE) for group in groups
    }
    link.close()
    stop_broker()
    with cordwood.open(data, read_only=True) as store:
        logs = store.topic(TOPIC).partitions
        everything = {log.partition: _values(log.read()) for log in logs}
        from_files = {log.partition: _values(log.read(isolation="read_committed")) for log in logs}
        for (group, partition), position in positions.items():
            found = store.group(group).committed(TOPIC, partition)
            if found != (None if position < 0 else position):
                raise SymptomError(f"{group} is at {position} for the broker, at {found} in files")
    if from_files != committed:
        raise SymptomError("committed readers of files and of the broker disagree")
    return Outcome(committed=committed, all=everything, positions=positions, hanging=hanging)


def _ends(link: Link, partition: int, deadline_s: float) -> tuple[int, int]:
    """The last stable offset and the high watermark, when all markers are written."""
    while True:
        stable, end = _fetch_ends(link, partition)
        if stable == end or time.monotonic() > deadline_s:
            return stable, end
        time.sleep(0.02)


def _fetch_ends(link: Link, partition: int) -> tuple[int, int]:
    def ask(client: RawClient) -> Any:
        body = fetch_body(FETCH, [Wanted(topic=TOPIC, partition=partition, max_bytes=1)])
        client.send(ApiKey.FETCH, FETCH, body)
        return receive_fetched(client, FETCH)

    answer = link.insist(
        ask,
        lambda answer: int(answer.responses[0].partitions[0].error_code),
        ("partition", TOPIC, partition),
    )
    part = answer.responses[0].partitions[0]
    return int(part.last_stable_offset), int(part.high_watermark)


def _all_committed(link: Link, partition: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    offset = 0
    while True:
        records, reached = read_committed(link, TOPIC, partition, offset, max_wait_ms=0)
        found += records
        if reached == offset:
            return found
        offset = reached


def _values(records: Any) -> list[tuple[int, str]]:
    return [(int(record.offset), (record.value or b"").decode()) for record in records]
