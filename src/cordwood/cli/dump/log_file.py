"""Dumps a ``.log`` file: its batches, their records, and any damage."""

import os
from collections.abc import Iterator
from typing import Final

from cordwood.checksums import crc32c
from cordwood.cli.dump.lines import Dump, DumpedFile, DumpLine, DumpOptions, Fields, Soundness
from cordwood.cli.dump.records import record_lines
from cordwood.cli.readable_values import shown_time
from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder, describe_stop
from cordwood.format.batch_header import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    decode_batch_header,
)
from cordwood.format.compression import Codec
from cordwood.format.file_names import NO_SUFFIX, FileKind, parse_segment_file_name
from cordwood.quantities import INT64_MAX, MIB, NO_SEQUENCE, FilePosition, Offset
from cordwood.storage.log_file.segment_reader import SegmentReader

_NO_PRODUCER: Final = -1
_NO_EPOCH: Final = -1
_SHORT: Final = tuple(
    describe_stop(stop) for stop in (tables.STOP_SHORT_HEADER, tables.STOP_SHORT_BATCH)
)
_HEADINGS: Final = " position     size      base      last   count  codec   crc  newest"


def dump_log(dumped: DumpedFile, options: DumpOptions) -> Dump:
    """All batches, including those after damaged bytes."""
    return _LogDump(dumped, options).lines()


class _LogDump:
    """One pass over the file; memory is bounded by the largest batch."""

    def __init__(self, dumped: DumpedFile, options: DumpOptions) -> None:
        self._dumped = dumped
        self._options = options
        self._left = INT64_MAX if options.limit is None else options.limit
        self._base_offset = _base_offset(dumped)
        self._reader = SegmentReader(dumped.file, self._base_offset, dumped.size)
        self._first_trouble: Soundness | None = None
        self._is_cut_short = False
        self._cut_at = (0, int(self._base_offset))

    def lines(self) -> Dump:
        yield DumpLine(_HEADINGS)
        reader = self._reader
        position, next_offset = FilePosition(0), self._base_offset
        while True:
            try:
                for first, stop in reader.chunks(position, next_offset):
                    yield from self._batches(reader.decoder, first, stop, reader.chunk_position)
                    if self._is_cut_short:
                        break
                break
            except CorruptSegmentError as error:
                following = reader.resume_after(error.position + 1, error.first_offset)
                end = self._dumped.size if following is None else following.position
                yield from self._damage(error, end)
                if following is None:
                    break
                position, next_offset = FilePosition(following.position), following.base_offset
        yield self._soundness()

    def _soundness(self) -> Soundness:
        if self._first_trouble is not None:
            return self._first_trouble
        if self._is_cut_short:
            position, offset = self._cut_at
            return Soundness(position=position, offset=offset, remark="stopped by -n")
        return Soundness(position=self._reader.position, offset=self._reader.next_offset)

    # --- batches -----------------------------------------------------------------------------

    def _batches(
        self, decoder: BatchDecoder, first: int, stop: int, chunk_position: int
    ) -> Iterator[DumpLine]:
        sound = stop if self._options.shows_records else _parsable(decoder, first, stop)
        for index in range(first, stop):
            if decoder.field(index, tables.B_NEXT_OFFSET) <= self._options.start_offset:
                if index >= sound:
                    yield from self._note_unparsable(decoder, index, chunk_position)
                continue
            if self._left <= 0:
                position = chunk_position + decoder.field(index, tables.B_POSITION)
                self._cut_at = position, decoder.field(index, tables.B_BASE_OFFSET)
                self._is_cut_short = True
                return
            yield from self._batch(decoder, index, chunk_position, is_judged=index < sound)

    def _batch(
        self, decoder: BatchDecoder, index: int, chunk_position: int, *, is_judged: bool
    ) -> Iterator[DumpLine]:
        position = chunk_position + decoder.field(index, tables.B_POSITION)
        start = decoder.field(index, tables.B_POSITION)
        header = decode_batch_header(decoder.data, start)
        yield _batch_line(header, position, is_crc_ok=True)
        if not self._options.shows_records:
            self._left -= 1
            if not is_judged:
                yield from self._note_unparsable(decoder, index, chunk_position)
            return
        try:
            records = decoder.parse(index).records()
        except FormatError:
            yield from self._note_unparsable(decoder, index, chunk_position)
            return
        for line in record_lines(records, self._options, is_control=header.is_control):
            if self._left <= 0:
                return
            yield line
            self._left -= 1

    def _note_unparsable(
        self, decoder: BatchDecoder, index: int, chunk_position: int
    ) -> Iterator[DumpLine]:
        """The checksum matches, but the records cannot be parsed: they were written like this."""
        try:
            decoder.parse(index)
        except FormatError as error:
            reason = error.reason
        else:
            return
        batch = decoder.batch(index)
        position = chunk_position + batch.position
        yield from self._trouble(
            f"the records cannot be read: {reason}",
            position=position,
            end=position + batch.size,
            offset=batch.base_offset,
            next_offset=batch.next_offset,
        )

    # --- damage ------------------------------------------------------------------------------

    def _damage(self, error: CorruptSegmentError, end: int) -> Iterator[DumpLine]:
        header = _header_at(self._dumped, error.position)
        reason = error.reason
        is_torn = False
        if error.next_offset is None:
            if _is_zeros(self._dumped, error.position):
                reason = "only zeros: preallocated or never written"
                is_torn = self._is_never_promised(error.first_offset)
            elif reason in _SHORT or (header is not None and error.position + header.size >= end):
                is_torn = self._may_be_torn(error.first_offset, is_short=reason in _SHORT)
        if header is not None and reason == error.reason and reason not in _SHORT:
            is_crc_ok = _is_crc_ok(self._dumped, header, error.position)
            yield _batch_line(header, error.position, is_crc_ok=is_crc_ok)
        yield from self._trouble(
            reason,
            position=error.position,
            end=end,
            offset=error.first_offset,
            next_offset=error.next_offset,
            is_torn=is_torn,
        )

    def _is_never_promised(self, offset: int) -> bool:
        """Whether no record at `offset` or behind it was promised to be in this file."""
        directory = os.path.dirname(os.path.abspath(self._dumped.path))
        durable = _durable_mark(directory)
        if durable is None or offset >= durable:
            return True
        names = (parse_segment_file_name(name) for name in os.listdir(directory))
        return any(
            name is not None
            and name.kind is FileKind.LOG
            and name.suffix == NO_SUFFIX
            and self._base_offset < name.base_offset <= offset
            for name in names
        )

    def _may_be_torn(self, offset: int, *, is_short: bool) -> bool:
        """Whether the broken bytes were never acknowledged.

        They are at the end of the newest segment, and not below the durable mark, if there is one.
        """
        directory, name = os.path.split(os.path.abspath(self._dumped.path))
        own = parse_segment_file_name(name)
        if own is None:
            return is_short
        later = (parse_segment_file_name(other) for other in os.listdir(directory))
        if any(
            other is not None
            and other.kind is FileKind.LOG
            and other.suffix == NO_SUFFIX
            and other.base_offset > own.base_offset
            for other in later
        ):
            return False
        durable = _durable_mark(directory)
        return is_short if durable is None else offset >= durable

    def _trouble(
        self,
        reason: str,
        *,
        position: int,
        end: int,
        offset: int,
        next_offset: int | None,
        is_torn: bool = False,
    ) -> Iterator[DumpLine]:
        if self._first_trouble is None:
            self._first_trouble = Soundness(
                position=position, offset=offset, problem=reason, is_torn=is_torn
            )
        fields = {
            "kind": "trouble",
            "position": position,
            "end_position": end,
            "offset": offset,
            "next_offset": next_offset,
            "reason": reason,
        }
        rest = "on" if next_offset is None else f"to {next_offset - 1}"
        text = f"! bytes {position} to {end}, offsets {offset} {rest}: {reason}"
        yield DumpLine(text, fields)


def _base_offset(dumped: DumpedFile) -> Offset:
    """The base offset in the file name, else that of the first batch."""
    if dumped.base_offset is not None:
        return Offset(dumped.base_offset)
    first = int.from_bytes(dumped.file.read_at(0, 8), "big", signed=True)
    return Offset(first if 0 <= first < INT64_MAX // 2 else 0)


def _parsable(decoder: BatchDecoder, first: int, stop: int) -> int:
    """`stop` if all batches can be parsed; else `first`, because any of them may fail."""
    try:
        for _ in decoder.runs(first, stop):
            pass
    except FormatError:
        return first
    return stop


def _header_at(dumped: DumpedFile, position: int) -> BatchHeader | None:
    try:
        return decode_batch_header(dumped.file.read_at(position, HEADER_SIZE))
    except FormatError:
        return None


def _is_crc_ok(dumped: DumpedFile, header: BatchHeader, position: int) -> bool:
    end = position + header.size
    if end > dumped.size:
        return False
    computed = 0
    for at in range(position + CRC_START, end, MIB):
        computed = crc32c(dumped.file.read_at(at, min(MIB, end - at)), computed)
    return bool(computed == header.crc)


def _is_zeros(dumped: DumpedFile, position: int) -> bool:
    """Whether only zeros follow, at least as many as a header has bytes."""
    if dumped.size - position < LOG_OVERHEAD:
        return False
    while position < dumped.size:
        piece = dumped.file.read_at(position, min(MIB, dumped.size - position))
        if not piece or piece.count(0) != len(piece):
            return not piece
        position += len(piece)
    return True


def _durable_mark(directory: str) -> int | None:
    from cordwood.storage.files import RealFileSystem
    from cordwood.storage.small_files.high_watermark_file import HighWatermarkFile

    marks = HighWatermarkFile(RealFileSystem(), directory, writable=False)
    try:
        return marks.read().durable
    finally:
        marks.close()


def _batch_line(header: BatchHeader, position: int, *, is_crc_ok: bool) -> DumpLine:
    codec = Codec(header.codec).name.lower() if header.codec <= Codec.ZSTD else str(header.codec)
    fields: Fields = {
        "kind": "batch",
        "position": position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "codec": codec,
        "base_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "timestamp_type": "append" if header.is_log_append_time else "create",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "leader_epoch": header.leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "has_delete_horizon": header.has_delete_horizon,
        "crc": header.crc,
        "is_crc_ok": is_crc_ok,
    }
    text = (
        f"{position:>9}  {header.size:>7}  {header.base_offset:>8}  {header.last_offset:>8}"
        f"  {header.record_count:>6}  {codec:<6}  {'ok ' if is_crc_ok else 'BAD'}"
        f"  {shown_time(header.max_timestamp)[:19]}"
    )
    return DumpLine("  ".join([text, *_extras(header)]).rstrip(), fields)


def _extras(header: BatchHeader) -> Iterator[str]:
    """Attributes that most batches do not have."""
    if header.is_control:
        yield "control"
    if header.is_transactional:
        yield "transactional"
    if header.has_delete_horizon:
        yield "delete horizon"
    if header.is_log_append_time:
        yield "append time"
    if header.producer_id != _NO_PRODUCER:
        yield f"producer {header.producer_id} epoch {header.producer_epoch}"
        if header.base_sequence != NO_SEQUENCE:
            yield f"sequence {header.base_sequence} to {header.last_sequence}"
    if header.leader_epoch > _NO_EPOCH + 1:
        yield f"leader epoch {header.leader_epoch}"
