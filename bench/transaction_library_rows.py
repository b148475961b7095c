"""`store.transaction`: transactions per second in one process, beside SQLite."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench.broker_produce_rows import size_name
from bench.measure import Context, Row, measure_row
from bench.peers import SQLITE, sqlite_log
from bench.workload import TOPIC, fresh_path
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store, StoreSetup

_RECORDS: Final = (1, 10, 100)
_VALUE_SIZE: Final = 100
_ID: Final = "bench"


def library_rows(context: Context, durability: str) -> list[Row]:
    seconds = 0.5 if context.is_quick else 2.0
    return [
        measure_row(
            f"library, {'1 record' if records == 1 else f'{records} records'}"
            f" of {size_name(_VALUE_SIZE)}",
            partial(_rate, context, durability, records, seconds),
            runs=context.runs,
            durability=durability,
            unit="transactions/s",
            peers={SQLITE: partial(_sqlite_rate, context, durability, records, seconds)},
            note=f"one thread, one partition; {seconds} s",
        )
        for records in _RECORDS
    ]


def _rate(context: Context, durability: str, records: int, seconds: float) -> float:
    value = bytes(_VALUE_SIZE)
    many = [(None, value)] * records
    with _new_store(context, durability) as store:
        with store.transaction(_ID) as transaction:
            transaction.append(TOPIC, value)  # the first one creates topics
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            with store.transaction(_ID) as transaction:
                if records == 1:
                    transaction.append(TOPIC, value)
                else:
                    transaction.append_many(TOPIC, many)
            count += 1
        return count / (time.perf_counter() - started)


@contextmanager
def _new_store(context: Context, durability: str) -> Iterator[Store]:
    """Topics of the store itself, as that of the transactions, have the same durability."""
    path = fresh_path(context.directory, "store")
    defaults = TopicConfig.parse({"durability": durability})
    with Store([str(path)], StoreSetup(defaults=defaults)) as store:
        store.create_topic(TOPIC)
        yield store


def _sqlite_rate(context: Context, durability: str, records: int, seconds: float) -> float:
    values = [bytes(_VALUE_SIZE)] * records
    path = fresh_path(context.directory, "sqlite")
    with sqlite_log(path, durability=durability) as log:
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            log.append_many(values)
            count += 1
        return count / (time.perf_counter() - started)
