"""Upkeep of tables: small files, old versions, leftovers of killed runs."""

from collections.abc import Iterable, Sequence
from typing import Any

from cordwood.spark.tables.lake_table import LakeTable, UpkeepPolicy
from cordwood.value_class import dataclass

__all__ = ["FileGroup", "UpkeepPolicy", "keep_up", "plan_merges"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Small files of one partition that become one."""

    paths: tuple[str, ...]
    partition: Any = None


def keep_up(table: LakeTable, policy: UpkeepPolicy) -> dict[str, int]:
    """Do the upkeep of a table, if it exists."""
    return {} if table.load() is None else table.keep_up(policy)


def plan_merges(files: Iterable[tuple[str, int, Any]], policy: UpkeepPolicy) -> list[FileGroup]:
    """Groups of two and more small files, each of about `file_bytes`, within a partition.

    `files` are paths with sizes and partitions.
    """
    small: dict[Any, list[tuple[str, int]]] = {}
    for path, size, partition in sorted(files, key=lambda file: file[0]):
        if size < policy.small_bytes:
            small.setdefault(partition, []).append((path, size))
    groups: list[FileGroup] = []
    for partition, found in small.items():
        groups += _groups(found, partition, policy.file_bytes)
    return groups


def _groups(
    found: Sequence[tuple[str, int]], partition: Any, file_bytes: int
) -> Iterable[FileGroup]:
    taken: list[str] = []
    total = 0
    for path, size in found:
        if taken and total + size > file_bytes:
            if len(taken) > 1:
                yield FileGroup(paths=tuple(taken), partition=partition)
            taken, total = [], 0
        taken.append(path)
        total += size
    if len(taken) > 1:
        yield FileGroup(paths=tuple(taken), partition=partition)
