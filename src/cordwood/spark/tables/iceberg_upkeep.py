"""Upkeep of an Iceberg table: pyiceberg expires snapshots, and leaves files to us."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from cordwood.spark.tables.file_merging import merge_group, merged_schema
from cordwood.spark.tables.lake_files import open_directory
from cordwood.spark.tables.lake_table import UpkeepPolicy, WrittenFile
from cordwood.spark.tables.table_upkeep import plan_merges

if TYPE_CHECKING:
    from pyiceberg.table import Table

_OURS: Final = "/data/cordwood-"


def merge_small_files(
    table: "Table", policy: UpkeepPolicy, directory: str
) -> tuple[list[WrittenFile], list[str], pa.Schema]:
    """Write larger files; return them, the files that they replace, and their columns."""
    tasks = list(table.scan().plan_files())
    sized = [
        (task.file.file_path, task.file.file_size_in_bytes, str(task.file.partition))
        for task in tasks
        if not task.delete_files
    ]
    groups = plan_merges(sized, policy)
    if not groups:
        return [], [], pa.schema([])
    schema = merged_schema(groups)
    added: list[WrittenFile] = []
    removed: list[str] = []
    for group in groups:
        added += merge_group(group, schema, directory)
        removed += group.paths
    return added, removed, schema


def expire(table: "Table", policy: UpkeepPolicy) -> int:
    """Forget snapshots that are older than the policy says; return how many."""
    before = datetime.fromtimestamp((time.time() * 1000 - policy.expire_ms) / 1000, UTC)
    kept = table.metadata.current_snapshot_id
    old = [
        snapshot.snapshot_id
        for snapshot in table.metadata.snapshots
        if snapshot.timestamp_ms < before.timestamp() * 1000 and snapshot.snapshot_id != kept
    ]
    if old:
        table.maintenance.expire_snapshots().older_than(before).commit()
    return len(old)


def sweep(table: "Table", policy: UpkeepPolicy) -> int:
    """Remove old files of ours that no snapshot names: of killed runs, and of expired snapshots."""
    used = _used_files(table)
    location = table.location().rstrip("/")
    oldest = datetime.fromtimestamp((time.time() * 1000 - policy.leftover_ms) / 1000, UTC)
    doomed = [
        url
        for folder, wanted in (("data", _OURS), ("metadata", ".avro"))
        for url, changed in _listed(f"{location}/{folder}")
        if wanted in url and url not in used and changed < oldest
    ]
    for url in doomed:
        fs, path = open_directory(url)
        fs.delete_file(path)
    return len(doomed)


def _used_files(table: "Table") -> set[str]:
    used: set[str] = set()
    manifests: set[str] = set()
    for snapshot in table.metadata.snapshots:
        used.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in manifests:
                continue
            manifests.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            used.update(entry.data_file.file_path for entry in entries)
    return used | manifests


def _listed(url: str) -> Sequence[tuple[str, datetime]]:
    """Files below a URL, with the time of their last change."""
    import pyarrow.fs as pafs

    fs, path = open_directory(url)
    selector = pafs.FileSelector(path, recursive=True, allow_not_found=True)
    return [
        (f"{url}{info.path[len(path) :]}", info.mtime)
        for info in fs.get_file_info(selector)
        if info.type == pafs.FileType.File and info.mtime is not None
    ]
