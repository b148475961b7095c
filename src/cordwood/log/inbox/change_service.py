"""The owner's side of the inbox: makes the changes that other processes request, and answers.

Requests are served one after the other, in the calling thread. Changes that take long run
beside them, each on a thread of its own; so do changes of topics that must wait for another
change. A request is data from outside: whatever is wrong with it is reported in its answer and
does not disturb the store.

An answer says what was done. If an earlier owner claimed the request, the store is searched for
its effect first; see `earlier_try.py`. A request is refused for its deadline only if nothing of
it was done.
"""

import errno
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from itertools import chain
from typing import Final, Protocol

from cordwood.clock import Clock
from cordwood.errors import (
    CordwoodError,
    LogClosedError,
    LogError,
    TopicExistsError,
)
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC
from cordwood.format.staged_batches import PlaceName
from cordwood.log.inbox.background_changes import BackgroundChanges
from cordwood.log.inbox.change_inbox import ChangeInbox, Claimed
from cordwood.log.inbox.earlier_try import EarlierTry, made_id
from cordwood.log.inbox.group_changes import GroupChanges
from cordwood.log.inbox.staged_rewrite import StagedRewrite
from cordwood.log.inbox.store_change import (
    CLAIMED_FACTOR,
    DONE,
    REFUSED,
    SKIPPED,
    ChangeAnswer,
    ChangeRequest,
    CommitGroup,
    PublishBatches,
    StoreChange,
    SwapSegments,
    parse_request,
)
from cordwood.log.inbox.topic_change import ForgetGroup
from cordwood.log.inbox.topic_change_service import ChangeableTopics, TopicChangeService
from cordwood.log.inbox.upkeep_change import (
    ArchiveTopics,
    CompactTopic,
    LongChange,
    RestoreTopic,
    RollTopic,
    SnapshotStore,
)
from cordwood.log.inbox.upkeep_change_service import MaintainedStore, UpkeepChangeService
from cordwood.log.publishing.publication import Part, Publisher
from cordwood.log.publishing.publication_ledger import Place
from cordwood.log.rules.work_progress import WorkProgress
from cordwood.log.topics.committed_offsets import CommittedOffsets, OffsetsTopicSource
from cordwood.storage.files import FileSystem
from cordwood.storage.small_files.staged_file import StagedFile

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.1  # how often to look for other requests while waiting for a long change


# Made again without harm if an earlier owner may have made them.
_REPEATABLE: Final = (RollTopic, CompactTopic, ArchiveTopics, SwapSegments)
# Made by one replica without the others.
_OF_ONE_REPLICA: Final = (RollTopic, CompactTopic, SnapshotStore)
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})


# Sees a change before it is made, and may return what is called once it was. Must not raise.
Witness = Callable[[StoreChange], Callable[[ChangeAnswer], None] | None]


class Served(Enum):
    """The state of a request after it was claimed."""

    ANSWERED = "answered"
    BEGUN = "begun"
    LEFT = "left for later"
    CLOSING = "left to the next owner"


class TopicsBusyError(Exception):
    """Another change of topics is under way, and the caller does not wait."""


class ServedStore(ChangeableTopics, MaintainedStore, Protocol):
    """What the service needs of a store; see `Store`."""

    @property
    def path(self) -> str: ...
    @property
    def is_of_cluster(self) -> bool: ...
    @property
    def is_shared(self) -> bool: ...
    @property
    def publisher(self) -> Publisher: ...
    @property
    def offsets_topic(self) -> OffsetsTopicSource: ...
    @property
    def committed_offsets(self) -> CommittedOffsets: ...


class ChangeService:
    """Serves the inbox of one store. Any thread may call it; while one serves, others wait."""

    def __init__(
        self, store: ServedStore, fs: FileSystem, clock: Clock, groups: GroupChanges
    ) -> None:
        """`groups` changes groups unless someone else coordinates them."""
        self.inbox = ChangeInbox(fs, store.path)
        self._store = store
        self._fs = fs
        self._clock = clock
        self._own_groups = self._groups = groups
        self._witness: Witness | None = None
        self._topics = TopicChangeService(store)
        self._upkeep = UpkeepChangeService(store)
        self._earlier = EarlierTry(store, fs)
        self._serving = threading.Lock()
        self._counting = threading.Lock()
        self._answered = 0  # on threads of their own, and not yet counted by `serve`
        self._long = BackgroundChanges(clock, self.inbox.note_progress)

    def coordinate_groups(self, coordinator: GroupChanges | None) -> None:
        """Leave changes of groups to `coordinator` from now on; None: make them here again.

        A broker registers its group coordinator: it knows the members of each group, whose
        offsets must not change under them.
        """
        self._groups = coordinator or self._own_groups

    def watch(self, witness: Witness | None) -> None:
        """Show every change to `witness` before it is made, and what it returns the answer."""
        self._witness = witness

    def serve(self, *, wait: bool = True, meanwhile: Callable[[], None] | None = None) -> int:
        """Answer every waiting request; return how many.

        Long changes run beside the others. With `wait`, they are waited for; requests that
        arrive meanwhile are served too, and `meanwhile` is called a few times a second. Without
        it, they are only begun.
        """
        answered = self._serve_waiting()
        while wait and self._long.is_busy:
            self._long.wait(_LOOK_S)
            answered += self._serve_waiting()
            if meanwhile is not None:
                meanwhile()
        return answered + self._take_answered()

    def serve_quickly(self) -> None:
        """Answer every waiting request without waiting for long changes."""
        self.serve(wait=False)

    def is_under_way(self, request_id: str) -> bool:
        """Whether a thread of its own makes this change now."""
        return self._long.holds(request_id)

    def close(self) -> None:
        """Wait for long changes. The store is closing, so they end early."""
        self._long.join()

    def _serve_waiting(self) -> int:
        answered = 0
        with self._serving:
            self._long.pulse()
            for request_id in self.inbox.waiting():
                if self._long.holds(request_id):
                    continue
                claimed = self.inbox.claim(request_id)
                if claimed is None:
                    continue
                outcome = self._serve_one(request_id, claimed)
                if outcome is Served.CLOSING:
                    break
                answered += 1 if outcome is Served.ANSWERED else 0
        return answered

    def _serve_one(self, request_id: str, claimed: Claimed) -> Served:
        content = claimed.content
        if isinstance(content, OSError) and content.errno in _NO_DESCRIPTOR:
            return Served.LEFT
        try:
            if not isinstance(content, bytes):
                raise content
            request = parse_request(content)
        except (CordwoodError, OSError) as error:
            return self._finish(request_id, None, _refusal(error))
        change = request.change
        if claimed.is_repeated or isinstance(change, PublishBatches):
            with suppress(CordwoodError, OSError):  # not known: the change is made
                answer = self._earlier.answer(request_id, request)
                if answer is not None:
                    return self._finish(request_id, change, answer)
        try:
            self._check_deadline(request_id, request, is_repeated=claimed.is_repeated)
            if isinstance(change, LongChange):
                return self._begin(request_id, change)
        except LogError as error:
            return self._finish(request_id, change, _refusal(error))

        def make() -> ChangeAnswer:
            is_partial = claimed.is_repeated and isinstance(change, CommitGroup | ForgetGroup)
            left = self._earlier.remaining(request) if is_partial else change
            return self._make(request_id, left, wait=False)

        try:
            answer = self._attempt(make)
        except TopicsBusyError:
            return Served.LEFT if self._long.is_full else self._begin(request_id, change)
        return self._finish(request_id, change, answer)

    def _begin(self, request_id: str, change: StoreChange) -> Served:
        """Make the change on a thread of its own. Raises `LogError` if there are too many."""
        self._long.begin(
            request_id,
            lambda progress: self._attempt(
                lambda: self._make(request_id, change, wait=True, progress=progress)
            ),
            lambda answer: self._finish_long(request_id, change, answer),
        )
        return Served.BEGUN

    def _finish_long(
        self, request_id: str, change: StoreChange, answer: ChangeAnswer | None
    ) -> None:
        """Answer a long change, on its own thread."""
        try:
            served = self._finish(request_id, change, answer)
        except OSError as error:
            # The change was made. If the request stayed, it would be made again and again.
            logger.error("could not write the answer to a request: %s", error)
            self.inbox.forget(request_id)
            return
        if served is Served.ANSWERED:
            with self._counting:
                self._answered += 1

    def _take_answered(self) -> int:
        with self._counting:
            count, self._answered = self._answered, 0
        return count

    def _finish(
        self, request_id: str, change: StoreChange | None, answer: ChangeAnswer | None
    ) -> Served:
        """Write the answer. Without one, leave the request to the next owner."""
        if answer is None:
            return Served.CLOSING
        if isinstance(change, PublishBatches):
            for staging_id in {file.staging_id for file in change.files}:
                self.inbox.discard_files(staging_id)
        self.inbox.answer(request_id, answer)
        return Served.ANSWERED

    def sweep(self) -> None:
        """Remove files of requests whose process died."""
        self.inbox.sweep(self._clock.now_ms())

    def _attempt(self, make: Callable[[], ChangeAnswer]) -> ChangeAnswer | None:
        """The answer; None if the store is closing and the next owner must make the change."""
        try:
            return make()
        except TopicsBusyError:
            raise
        except (CordwoodError, OSError) as error:
            if isinstance(error, LogClosedError) and self._store.is_closed:
                return None
            return _refusal(error)
        except Exception as error:
            # A request must not end the owner's thread, whatever bug it hits.
            logger.exception("a requested change failed")
            return ChangeAnswer(outcome=REFUSED, reason=f"{type(error).__name__}: {error}")

    def _check_deadline(
        self, request_id: str, request: ChangeRequest, *, is_repeated: bool
    ) -> None:
        """Raise if nobody waits for the answer any more. Nothing of the change was made."""
        limit_ms: int = request.deadline_ms
        if is_repeated:
            if isinstance(request.change, _REPEATABLE):
                return
            beat_ms = self.inbox.last_beat_ms(request_id)
            if beat_ms is not None:
                limit_ms = max(limit_ms, beat_ms + request.timeout_ms)
            limit_ms += CLAIMED_FACTOR * request.timeout_ms
        late_ms = self._clock.now_ms() - limit_ms
        if late_ms > 0:
            raise LogError(f"the request came {late_ms} ms after its deadline")

    def _make(
        self,
        request_id: str,
        change: StoreChange,
        *,
        wait: bool,
        progress: WorkProgress | None = None,
    ) -> ChangeAnswer:
        """Make the change. Unless `wait`, raise `TopicsBusyError` rather than wait for others."""
        if self._store.is_shared:
            raise LogError(
                "several processes run this store (serve --processes). What Kafka's protocol has "
                "is asked of the broker, with a Kafka client or --at host:port. `roll`, `compact`, "
                "`snapshot` and jobs that change files need a single process: stop the broker, "
                "or serve without --processes"
            )
        if self._store.is_of_cluster and not isinstance(change, _OF_ONE_REPLICA):
            raise LogError(
                "this directory belongs to a broker of a cluster; ask the cluster, with a Kafka "
                "client or --at host:port"
            )
        report = None if self._witness is None else self._witness(change)
        answer = self._made(request_id, change, wait=wait, progress=progress)
        if report is not None and answer.outcome == DONE:
            report(answer)
        return answer

    def _made(
        self, request_id: str, change: StoreChange, *, wait: bool, progress: WorkProgress | None
    ) -> ChangeAnswer:
        match change:
            case PublishBatches():
                return self._publish(change, wait=wait)
            case SwapSegments():
                topic = self._store.topic(change.topic)
                log = topic.partition(change.partition)
                paths = [self.inbox.file_path(request_id, file.name) for file in change.files]
                return StagedRewrite(self._fs, log, topic.topic_id, change, paths).run()
            case CommitGroup():
                self._ensure_offsets_topic(wait=wait)
                self._groups.commit(change)
                return ChangeAnswer(outcome=DONE)
            case ForgetGroup():
                self._groups.forget(change)
                return ChangeAnswer(outcome=DONE)
            case RollTopic() | CompactTopic() | ArchiveTopics() | SnapshotStore() | RestoreTopic():
                return self._upkeep.make(change, progress or WorkProgress(), made_id(request_id))
            case _:
                with self._changing_topics(wait=wait):
                    return self._topics.make(change, made_id(request_id))

    def _ensure_offsets_topic(self, *, wait: bool) -> None:
        """Otherwise the first commit would create it, and wait."""
        if self._store.registry.find(CONSUMER_OFFSETS_TOPIC) is None:
            with self._changing_topics(wait=wait):
                self._store.offsets_topic.ensure()

    @contextmanager
    def _changing_topics(self, *, wait: bool) -> Iterator[None]:
        lock = self._store.registry.changing
        if not lock.acquire(blocking=wait):
            raise TopicsBusyError
        try:
            yield
        finally:
            lock.release()

    # --- publishing --------------------------------------------------------------------------

    def _publish(self, change: PublishBatches, *, wait: bool) -> ChangeAnswer:
        publisher = self._store.publisher
        if publisher.has_published(change.publication):
            return ChangeAnswer(outcome=SKIPPED)
        with ExitStack() as opened:
            files = [
                opened.enter_context(
                    StagedFile(
                        self._fs,
                        self.inbox.file_path(file.staging_id, file.name),
                        size=file.size,
                    )
                )
                for file in change.files
            ]
            sizes = _sizes(files)
            for topic, partitions in change.topics.items():
                self._ensure_topic(topic, partitions, wait=wait)
            parts = [self._part(place, size, files) for place, size in sizes.items()]
            published = publisher.publish(change.publication, parts)
        return ChangeAnswer(
            outcome=SKIPPED if published.is_repeated else DONE,
            facts={"offsets": [[*place, *offsets] for place, offsets in published.offsets.items()]},
        )

    def _ensure_topic(self, name: str, partitions: int, *, wait: bool) -> None:
        registry = self._store.registry
        if registry.find(name) is not None:
            return
        with self._changing_topics(wait=wait), suppress(TopicExistsError):
            registry.create(name, partitions=partitions)

    def _part(self, place: PlaceName, size: int, files: Sequence[StagedFile]) -> Part:
        topic = self._store.topic(place[0])
        log = topic.partition(place[1])

        def batches() -> Iterator[memoryview]:
            size_max = log.config.max_message_bytes
            return chain.from_iterable(file.batches(place, size_max=size_max) for file in files)

        return Part(log=log, place=Place.of(topic, log.partition), batches=batches, size=size)


def _sizes(files: Sequence[StagedFile]) -> dict[PlaceName, int]:
    totals: dict[PlaceName, int] = {}
    for file in files:
        for place, size in file.sizes().items():
            totals[place] = totals.get(place, 0) + size
    return totals


def _refusal(error: Exception) -> ChangeAnswer:
    logger.warning("refused a requested change: %s", error)
    return ChangeAnswer(outcome=REFUSED, reason=_described(error))


def _described(error: BaseException) -> str:
    notes = getattr(error, "__notes__", [])
    return "; ".join([f"{type(error).__name__}: {error}", *notes])
