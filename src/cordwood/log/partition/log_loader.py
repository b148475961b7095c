"""Opening a log for writing: from a directory of files to segments, offsets and producer state.

Batches below the recovery point were synced and are trusted. Batches past it are read again. After
a clean shutdown the recovery point is the end of the log, so only the last few kilobytes are read.
"""

import contextlib
import logging
from collections.abc import Sequence

from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder
from cordwood.format.file_names import FileKind
from cordwood.format.small_files.segment_manifest import Hole, SegmentManifest
from cordwood.log.partition.derived_state.producer_snapshots import (
    load_newest,
    remove_strays,
    replay,
)
from cordwood.log.reading.log_start import known_start
from cordwood.log.reading.missing_segments import missing_front, missing_segments
from cordwood.log.reading.segment_list import SegmentList
from cordwood.log.rules.leader_epochs import LeaderEpochs
from cordwood.log.rules.producer_state import ProducerStates
from cordwood.quantities import (
    INT64_MAX,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    LeaderEpoch,
    Offset,
    TimestampMs,
)
from cordwood.storage.files import FileSystem
from cordwood.storage.recovery import (
    Damage,
    RecoveryPlan,
    Walk,
    plan_recovery,
    rebuild_indexes,
    walk_segment,
)
from cordwood.storage.replacement.segment_files import FoundSegment, segment_end, tidy_directory
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from cordwood.storage.small_files.checkpoint_file import (
    read_epoch_checkpoint,
    write_epoch_checkpoint,
)
from cordwood.storage.small_files.high_watermark_file import LogMarks
from cordwood.value_class import dataclass, field, replace

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What is known of a log before its files are read.

    steady_ms         the time by which producers expire: see `SteadyClock`
    recovery_point    checkpointed: everything below was synced, with its indexes; None unknown
    log_start         checkpointed: offsets below were deleted by request
    is_clean          the last owner shut down in order
    is_durable_exact  the topic acknowledges nothing before it is synced
    has_begun         the log was synced once; until then it need not have a durable mark
    """

    fs: FileSystem
    directory: str
    handles: HandleCache
    limits: SegmentLimits
    marks: LogMarks
    now_ms: TimestampMs
    steady_ms: TimestampMs
    recovery_point: Offset | None
    log_start: Offset | None
    is_clean: bool
    is_durable_exact: bool
    allows_gaps: bool
    manifest: SegmentManifest | None = None
    has_begun: bool = True


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """A log ready to be read and appended to. Its last segment is active."""

    segments: SegmentList[Segment]
    start: Offset
    end: Offset
    epochs: LeaderEpochs
    producers: ProducerStates
    damages: list[Damage]
    recovered_bytes: int
    torn_bytes: int
    durable: Offset
    recovery_point: Offset
    unsealed: list[Segment]
    manifest: SegmentManifest | None = None
    holes: Sequence[Hole] = ()


@dataclass(slots=True)
class _Seen:
    """What the walk over unsynced batches found."""

    epochs: LeaderEpochs
    has_producers: bool = False
    first_offset: Offset | None = None
    broken_from: Offset | None = None  # first segment without its aborted transactions
    bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    has_wrong_epochs: bool = False  # the checkpoint had epochs that batches contradict

    def visit(self, decoder: BatchDecoder, first: int, stop: int) -> None:
        row = tables.BATCH_ROW
        if self.first_offset is None:
            self.first_offset = Offset(decoder.field(first, tables.B_BASE_OFFSET))
        ids = decoder.rows[first * row + tables.B_PRODUCER_ID : stop * row : row]
        self.has_producers = self.has_producers or max(ids) != NO_PRODUCER_ID
        self.bytes += sum(decoder.rows[first * row + tables.B_SIZE : stop * row : row])
        epochs = decoder.rows[first * row + tables.B_LEADER_EPOCH : stop * row : row]
        latest = self.epochs.latest
        if latest is not None and min(epochs) < latest.epoch:
            # Of batches of one epoch, the last one says enough.
            self._compare_epochs(decoder, stop - 1 if min(epochs) == max(epochs) else first, stop)
            latest = self.epochs.latest
        if max(epochs) > (NO_LEADER_EPOCH if latest is None else latest.epoch):
            for index in range(first, stop):
                epoch = decoder.field(index, tables.B_LEADER_EPOCH)
                if epoch >= 0:
                    offset = Offset(decoder.field(index, tables.B_BASE_OFFSET))
                    self.epochs.assign(LeaderEpoch(epoch), offset)

    def _compare_epochs(self, decoder: BatchDecoder, first: int, stop: int) -> None:
        """Believe the batches: they say what the log has.

        The checkpoint is durable at once. A cut of the log and the batches of later epochs that
        followed it may be lost with `durability=os`, and older batches come back. A replica that
        claimed the later epochs for them would never find out that its leader has others.
        """
        for index in range(first, stop):
            epoch = decoder.field(index, tables.B_LEADER_EPOCH)
            if epoch >= 0:
                last = decoder.field(index, tables.B_NEXT_OFFSET) - 1
                if self.epochs.drop_contradicted(LeaderEpoch(epoch), Offset(last)):
                    self.has_wrong_epochs = True


def load_log(request: LoadRequest) -> LoadedLog:
    """Open the log. Repair what can be repaired and report the rest."""
    fs, directory = request.fs, request.directory
    files = tidy_directory(fs, directory)
    seen = _Seen(read_epochs(fs, directory))
    start = known_start(
        directory,
        first_base=files.segments[0].base_offset if files.segments else None,
        mark=request.marks.log_start,
        checkpoint=request.log_start,
        epochs=seen.epochs,
    )
    segments = _open_all(request, files.segments)
    if not segments:
        return _empty(request, start, seen)
    seen.broken_from = _drop_broken_transaction_indexes(segments)
    holes = _holes(files.segments, request)
    front = missing_front(holes, segments[0].base_offset)
    if front is not None:
        holes = holes[1:]
        earliest = seen.epochs.earliest
        # The epochs prove a deletion by Kafka, which moves no mark.
        if earliest is None or earliest.start_offset < front.next:
            # The start stays before the lost files; behind them, this would look like retention.
            start = front.first
            seen.damages.append(_lost_front(front, segments[0]))
    seen.damages += [_lost_segments(hole, request) for hole in holes]
    floor = _first_to_walk(segments, start, request)
    seen.damages += _emptied(segments[:floor], request)
    for segment, found in zip(segments[:floor], files.segments, strict=False):
        if not found.has_indexes:
            rebuild_indexes(segment)
    walks = _walk(segments[floor:], request, seen)
    durable = max(
        request.recovery_point or 0, request.marks.durable or 0, segments[floor].base_offset
    )
    plan = plan_recovery(
        walks,
        durable=Offset(durable),
        is_durable_exact=request.is_durable_exact
        and (request.marks.durable is not None or not request.has_begun),
        allows_gaps=request.allows_gaps,
    )
    torn_bytes = sum(walk.written_size for walk in walks) - _kept_bytes(walks, plan)
    if plan.end_offset < start:
        # Deleted by request, then lost: these offsets must not be given again.
        plan = replace(plan, end_offset=start, is_appendable=False)
    segments, unsealed = _apply(segments, floor, walks, plan, request, Offset(durable))
    end = plan.end_offset
    is_synced = request.is_durable_exact
    start = Offset(min(start, end))
    seen.epochs.truncate_from_end(Offset(end + 1))  # the current one may have no records yet
    if seen.epochs.truncate_from_start(start) or seen.has_wrong_epochs:
        # Only the mark had this start; the epochs confirm its checkpoint, see `known_start`.
        write_epoch_checkpoint(fs, directory, seen.epochs.entries)
    segment_list = SegmentList(segments)
    rebuilt_from = _rebuilt_from(segments[floor], request, seen)
    producers = _load_producers(
        request, files.snapshots, segment_list, start, end, seen, rebuilt_from
    )
    if torn_bytes:
        logger.warning("%s: cut %d torn bytes, the log ends at %d", directory, torn_bytes, end)
    return LoadedLog(
        segments=segment_list,
        start=start,
        end=end,
        epochs=seen.epochs,
        producers=producers,
        damages=_promised_ones([*seen.damages, *plan.damages], request),
        recovered_bytes=seen.bytes,
        torn_bytes=torn_bytes,
        durable=end if is_synced else Offset(min(durable, end)),
        recovery_point=end if is_synced else Offset(min(request.recovery_point or 0, end)),
        unsealed=unsealed,
        manifest=request.manifest,
        holes=holes,
    )


# --- before the walk -------------------------------------------------------------------------


def read_epochs(fs: FileSystem, directory: str) -> LeaderEpochs:
    """The epochs of a log; none if the file is unreadable, because the batches carry theirs."""
    try:
        return LeaderEpochs(read_epoch_checkpoint(fs, directory))
    except FormatError as error:
        logger.warning("%s: leader epochs are unreadable, rebuilding: %s", directory, error)
        return LeaderEpochs()


def _open_all(request: LoadRequest, found: list[FoundSegment]) -> list[Segment]:
    ends = [segment.base_offset for segment in found[1:]] + [None] * bool(found)
    return [
        Segment.open_sealed(
            request.fs,
            request.directory,
            segment.base_offset,
            size=segment.size,
            next_offset=segment.base_offset if end is None else end,
            handles=request.handles,
            limits=request.limits,
            is_last=end is None,
        )
        for segment, end in zip(found, ends, strict=True)
    ]


def _empty(request: LoadRequest, start: Offset, seen: _Seen) -> LoadedLog:
    """Open a log without segments: it is new, or it lost its files."""
    end = Offset(max(start, request.recovery_point or 0, request.marks.durable or 0))
    if end > start:
        seen.damages.append(
            Damage(
                path=request.directory,
                position=0,
                first_offset=start,
                next_offset=end,
                reason="its log files are missing",
            )
        )
    loaded = _begun_at(request, end, seen.damages)
    if end > start:  # with another start or other epochs the loss would look like a deletion
        seen.epochs.truncate_from_end(Offset(end + 1))
        loaded.start, loaded.epochs = start, seen.epochs
    request.fs.sync_directory(request.directory)
    loaded.producers.last_snapshot_offset = Offset(end - 1)
    return loaded


def load_new_log(request: LoadRequest) -> LoadedLog:
    """Open a log that never had records. Nothing is synced: the first sync does that."""
    loaded = _begun_at(request, Offset(0), [])
    loaded.producers.last_snapshot_offset = Offset(0)
    return loaded


def _begun_at(request: LoadRequest, offset: Offset, damages: list[Damage]) -> LoadedLog:
    return LoadedLog(
        segments=SegmentList([_create(request, offset)]),
        start=offset,
        end=offset,
        epochs=LeaderEpochs(),
        producers=ProducerStates(end_offset=offset),
        damages=damages,
        recovered_bytes=0,
        torn_bytes=0,
        durable=offset,
        recovery_point=offset,
        unsealed=[],
    )


def _create(request: LoadRequest, base_offset: Offset) -> Segment:
    return Segment.create(
        request.fs,
        request.directory,
        base_offset,
        handles=request.handles,
        limits=request.limits,
        now_ms=request.now_ms,
    )


def _lost_front(hole: Hole, first: Segment) -> Damage:
    return Damage(
        path=first.name,
        position=0,
        first_offset=hole.first,
        next_offset=hole.next,
        reason="the files before this one are missing",
    )


def _holes(segments: list[FoundSegment], request: LoadRequest) -> list[Hole]:
    by_base = {segment.base_offset: segment for segment in segments}
    return missing_segments(
        list(by_base),
        manifest=request.manifest,
        mark=request.marks.log_start,
        checkpoint=request.log_start,
        end_of=lambda base: segment_end(request.fs, request.directory, by_base[base]),
    )


def _lost_segments(hole: Hole, request: LoadRequest) -> Damage:
    return Damage(
        path=request.directory,
        position=0,
        first_offset=hole.first,
        next_offset=hole.next,
        reason="log files are missing",
    )


def _promised_ones(damages: list[Damage], request: LoadRequest) -> list[Damage]:
    """The damages above the start. Below it, an unfinished deletion may leave holes."""
    start = max(request.log_start or 0, request.marks.log_start or 0)
    return [damage for damage in damages if damage.next_offset > start]


def _emptied(segments: list[Segment], request: LoadRequest) -> list[Damage]:
    """Empty sealed segments. The recovery plan judges those that are walked."""
    if request.allows_gaps:
        return []
    return [
        Damage(
            path=segment.name,
            position=0,
            first_offset=segment.base_offset,
            next_offset=segment.next_offset,
            reason="the file is empty",
        )
        for segment in segments
        if segment.size == 0 and segment.next_offset > segment.base_offset
    ]


def _first_to_walk(segments: list[Segment], start: Offset, request: LoadRequest) -> int:
    """Index of the segment that holds the recovery point, or the start if that is later.

    An unfinished deletion may leave holes below the start: they are not the end of the log.
    """
    last = len(segments) - 1
    if request.recovery_point is None and request.is_clean:
        return last
    known = max(request.recovery_point or 0, start)
    for index in range(last, 0, -1):
        base = segments[index].base_offset
        if base <= known:
            was_active = base == request.recovery_point and base > start
            return index - 1 if was_active and _has_zeros(segments[index - 1], base) else index
    return 0


def _has_zeros(segment: Segment, end: Offset) -> bool:
    """Whether anything lies behind the last batch, which ends at `end`.

    The recovery point came while the segment was the last one. Then it was rolled, and its file
    trimmed; a power cut may undo that.
    """
    try:
        return segment.reader().locate(end, segment.hint(end)) is not None
    except (CorruptSegmentError, OSError):
        return True


# --- the walk --------------------------------------------------------------------------------


def _walk(segments: list[Segment], request: LoadRequest, seen: _Seen) -> list[Walk]:
    walks: list[Walk] = []
    for segment in segments:
        segment.activate(now_ms=request.now_ms, is_synced=request.is_clean)
        if request.recovery_point is not None:
            trusted = request.recovery_point
        else:
            trusted = Offset(segment.base_offset + 2**31) if request.is_clean else Offset(0)
        walks.append(walk_segment(segment, trusted, seen.visit))
    return walks


def _kept_bytes(walks: list[Walk], plan: RecoveryPlan) -> int:
    kept = sum(walk.written_size for walk in walks[: plan.kept])
    if plan.cut_position is not None:
        kept -= walks[plan.kept - 1].written_size - plan.cut_position
    return kept


def _apply(
    segments: list[Segment],
    floor: int,
    walks: list[Walk],
    plan: RecoveryPlan,
    request: LoadRequest,
    durable: Offset,
) -> tuple[list[Segment], list[Segment]]:
    """Change the files as the plan says; durably, if the topic promises the disk.

    Later segments go first: a crash in between leaves a shorter log to walk again. What was
    not known to be durable is written again by its next sync: the last owner may have stopped
    because a sync of just these bytes failed, and then syncing them again would prove nothing.
    Returns the segments, and those of them that are yet to be sealed.
    """
    fs = request.fs
    dropped = segments[floor + plan.kept :]
    for segment in reversed(dropped):
        for kind in (FileKind.TXNINDEX, FileKind.TIMEINDEX, FileKind.INDEX, FileKind.LOG):
            if fs.exists(segment.path(kind)):
                fs.remove(segment.path(kind))
        segment.close()
    kept = segments[: floor + plan.kept]
    if dropped and kept:
        kept[-1].offset_limit = INT64_MAX  # nothing follows it any more
    if plan.cut_position is not None:
        last = kept[-1]
        # The walk indexed only valid batches; entries behind the cut are removed here.
        _cut_and_rewalk(last, plan)
    for walk, segment in zip(walks, kept[floor:], strict=False):
        if walk.is_untrimmed and segment.size == walk.end:
            segment.writer.cut_tail(walk.end)
    for segment in kept[floor:]:
        if durable < segment.next_offset:
            segment.distrusted.add_from(durable)
    frozen = kept[floor:-1] if plan.is_appendable else kept[floor:]
    for segment in frozen:
        segment.freeze()
    if not plan.is_appendable:
        kept.append(_create(request, plan.end_offset))
    is_kept_whole = plan.is_appendable and plan.cut_position is None and not (dropped or frozen)
    if is_kept_whole and request.is_clean and durable >= plan.end_offset:
        return kept, []  # nothing has changed since the last owner synced everything
    for segment in kept[floor:]:
        with contextlib.suppress(OSError):  # derived; the next flush tries again
            segment.indexes.flush(at_least=0)  # readers beside must find none behind the end
    if not request.is_durable_exact:
        return kept, frozen
    for segment in frozen:
        segment.seal()
    kept[-1].sync_log()
    fs.sync_directory(request.directory)
    return kept, []


def _cut_and_rewalk(segment: Segment, plan: RecoveryPlan) -> None:
    assert plan.cut_position is not None
    had_batches_behind = segment.size > plan.cut_position
    if had_batches_behind:
        segment.writer.truncate_to(plan.cut_position, plan.end_offset)
        segment.indexes.clear()
        walk_segment(segment, Offset(0), lambda _decoder, _first, _stop: None)
    else:
        segment.writer.cut_tail(plan.cut_position)


# --- after the walk --------------------------------------------------------------------------


def _drop_broken_transaction_indexes(segments: list[Segment]) -> Offset | None:
    """Remove invalid ones; return the base of the first segment that lost one."""
    first: Offset | None = None
    for segment in segments:
        try:
            segment.indexes.transaction.sanity_check()
        except FormatError as error:
            logger.warning("rebuilding %s: %s", segment.indexes.transaction.path, error)
            segment.indexes.transaction.remove()
            first = segment.base_offset if first is None else first
        segment.indexes.transaction.release()
    return first


def _rebuilt_from(first_walked: Segment, request: LoadRequest, seen: _Seen) -> Offset | None:
    """Where rebuilding the indexes of aborted transactions starts; None if they are trusted."""
    if request.is_clean or not seen.has_producers:
        return seen.broken_from
    point = request.recovery_point
    walked = first_walked.base_offset if point is None else min(point, first_walked.next_offset)
    return walked if seen.broken_from is None else min(walked, seen.broken_from)


def _load_producers(
    request: LoadRequest,
    snapshots: list[Offset],
    segments: SegmentList[Segment],
    start: Offset,
    end: Offset,
    seen: _Seen,
    rebuilt_from: Offset | None,
) -> ProducerStates:
    states = load_newest(
        request.fs,
        request.directory,
        snapshots,
        log_start=start,
        log_end=end,
        newest=rebuilt_from,
        now_ms=request.steady_ms,
    )
    walked_from = end if seen.first_offset is None else seen.first_offset
    is_walk_enough = states.map_end_offset >= walked_from
    if is_walk_enough and not seen.has_producers and rebuilt_from is None:
        states.advance_to(end)
    elif not snapshots and request.is_clean and rebuilt_from is None:
        states.advance_to(end)  # a log that never had producers, or an upgrade
    elif rebuilt_from is None:
        replay(states, segments, end)
    else:
        rebuilt = list(segments)[max(segments.floor(rebuilt_from), 0) :]
        for segment in rebuilt:
            segment.indexes.reopen_transactions(rebuilt_from)
        replay(states, segments, end)
        for segment in rebuilt[:-1]:
            segment.indexes.transaction.seal()
        rebuilt[-1].indexes.transaction.sync()
        request.fs.sync_directory(request.directory)
    bases = [segment.base_offset for segment in segments]
    remove_strays(request.fs, request.directory, [s for s in snapshots if s <= end], bases)
    return states
