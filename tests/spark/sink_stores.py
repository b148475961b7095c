"""Stores that are written to: what is in them, and what was left over."""

from __future__ import annotations

import os
from pathlib import Path

import cordwood
from cordwood.format.record import Record
from cordwood.log.inbox.change_inbox import inbox_directory


def records(path: Path, topic: str = "orders") -> dict[int, list[Record]]:
    """All records of a topic by partition, as any reader sees them."""
    with cordwood.open(path, read_only=True) as store:
        return {
            log.partition: list(log.read(log.start_offset)) for log in store.topic(topic).partitions
        }


def values(path: Path, topic: str = "orders") -> list[bytes]:
    """The values of all records of a topic, sorted."""
    found = [record.value for log in records(path, topic).values() for record in log]
    return sorted(value for value in found if value is not None)


def leftovers(path: Path) -> list[str]:
    """What is in the inbox, where nothing is to stay."""
    try:
        return sorted(os.listdir(inbox_directory(str(path))))
    except FileNotFoundError:
        return []
