"""Dumps small files: producer snapshots, checkpoints, metadata, the high-watermark file."""

from collections.abc import Callable, Iterator
from typing import Final

from cordwood.cli.dump.lines import Dump, DumpedFile, DumpLine, DumpOptions, Fields, Soundness
from cordwood.cli.readable_values import printable, shown_time
from cordwood.errors import FormatError
from cordwood.format.small_files.checkpoint_text import (
    decode_text,
    parse_epoch_checkpoint,
    parse_offset_checkpoint,
)
from cordwood.format.small_files.meta_properties import parse_meta_properties
from cordwood.format.small_files.partition_metadata import encode_topic_id, parse_partition_metadata
from cordwood.format.small_files.producer_snapshot import decode_producer_snapshot
from cordwood.quantities import MIB
from cordwood.storage.small_files.high_watermark_file import decode_words

_BYTES_MAX: Final = 256 * MIB
_LINES_MAX: Final = 1000  # shown of a text file that is damaged

Read = Callable[[bytes], Iterator[DumpLine]]


def dump_snapshot(dumped: DumpedFile, options: DumpOptions) -> Dump:
    """The last batch of each producer."""
    return _dump(dumped, options, _producers)


def dump_offset_checkpoint(dumped: DumpedFile, options: DumpOptions) -> Dump:
    return _dump(dumped, options, _offsets, is_text=True)


def dump_epoch_checkpoint(dumped: DumpedFile, options: DumpOptions) -> Dump:
    return _dump(dumped, options, _epochs, is_text=True)


def dump_partition_metadata(dumped: DumpedFile, options: DumpOptions) -> Dump:
    return _dump(dumped, options, _topic_id, is_text=True)


def dump_meta_properties(dumped: DumpedFile, options: DumpOptions) -> Dump:
    return _dump(dumped, options, _properties, is_text=True)


def dump_high_watermark(dumped: DumpedFile, options: DumpOptions) -> Dump:
    return _dump(dumped, options, _marks)


def _dump(dumped: DumpedFile, options: DumpOptions, read: Read, *, is_text: bool = False) -> Dump:
    """The whole content if it is sound; of a damaged text file, the lines before the damage."""
    if dumped.size > _BYTES_MAX:
        problem = f"too large: {dumped.size} bytes, at most {_BYTES_MAX} are expected"
        yield Soundness(position=0, problem=problem)
        return
    data = dumped.file.read_at(0, dumped.size)
    try:
        lines = list(read(data))
    except FormatError as error:
        if is_text:
            yield from _lines_before(data, error.position)
        position = error.position if is_text else 0
        yield Soundness(position=position, problem=error.reason)
        return
    shown = 0
    for line in lines:
        if line.fields is None or options.limit is None or shown < options.limit:
            yield line
        shown += line.fields is not None
    yield Soundness(position=dumped.size)


def _lines_before(data: bytes, position: int) -> Iterator[DumpLine]:
    for line in data[:position].splitlines()[:_LINES_MAX]:
        yield DumpLine(printable(line), {"kind": "line", "text": line.decode(errors="replace")})


def _producers(data: bytes) -> Iterator[DumpLine]:
    yield DumpLine(
        f"{'producer':>12}  {'epoch':>6}  {'sequence':>10}  {'last offset':>12}"
        "  time                     open transaction"
    )
    for entry in decode_producer_snapshot(data):
        is_open = entry.current_txn_first_offset >= 0
        fields: Fields = {
            "kind": "producer",
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "offset_delta": entry.offset_delta,
            "timestamp_ms": entry.timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.current_txn_first_offset if is_open else None,
        }
        yield DumpLine(
            f"{entry.producer_id:>12}  {entry.producer_epoch:>6}  {entry.last_sequence:>10}"
            f"  {entry.last_offset:>12}  {shown_time(entry.timestamp)[:23]:<23}"
            f"  {f'from offset {entry.current_txn_first_offset}' if is_open else 'none'}",
            fields,
        )


def _offsets(data: bytes) -> Iterator[DumpLine]:
    yield DumpLine(f"{'offset':>20}  partition")
    for (topic, partition), offset in sorted(parse_offset_checkpoint(decode_text(data)).items()):
        fields = {"kind": "offset", "topic": topic, "partition": partition, "offset": offset}
        yield DumpLine(f"{offset:>20}  {topic}-{partition}", fields)


def _epochs(data: bytes) -> Iterator[DumpLine]:
    yield DumpLine(f"{'epoch':>12}  {'start offset':>20}")
    for entry in parse_epoch_checkpoint(decode_text(data)):
        fields = {"kind": "epoch", "epoch": entry.epoch, "start_offset": entry.start_offset}
        yield DumpLine(f"{entry.epoch:>12}  {entry.start_offset:>20}", fields)


def _topic_id(data: bytes) -> Iterator[DumpLine]:
    topic_id = encode_topic_id(parse_partition_metadata(decode_text(data)))
    yield DumpLine(f"topic id  {topic_id}", {"kind": "partition", "topic_id": topic_id})


def _properties(data: bytes) -> Iterator[DumpLine]:
    meta = parse_meta_properties(data.decode("latin-1"))
    directory_id = None if meta.directory_id is None else encode_topic_id(meta.directory_id)
    fields = {
        "version": meta.version,
        "cluster_id": meta.cluster_id,
        "node_id": meta.node_id,
        "directory_id": directory_id,
    }
    for name, value in fields.items():
        text = "-" if value is None else printable(str(value).encode(errors="replace"))
        yield DumpLine(f"{name.replace('_', ' '):<12}  {text}", {"kind": "property", name: value})


def _marks(data: bytes) -> Iterator[DumpLine]:
    """A live writer may be between two stores to a word; that is not damage."""
    for name, value in decode_words(data).items():
        text = "no valid value" if value is None else str(value)
        yield DumpLine(
            f"{name.replace('_', ' '):<14}  {text}", {"kind": "mark", "name": name, "offset": value}
        )
