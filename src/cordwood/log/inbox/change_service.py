"""The owner's side of the inbox: makes the changes that other processes request, and answers.

Requests are served one after the other, in the calling thread. Changes that take long run
beside them, each on a thread of its own. A request is data from outside: whatever is wrong with
it is reported in its answer and does not disturb the store.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from enum import Enum
from itertools import chain
from typing import Final, Protocol

from cordwood.clock import Clock
from cordwood.errors import (
    CordwoodError,
    FormatError,
    LogClosedError,
    LogError,
    TopicExistsError,
)
from cordwood.format.staged_batches import PlaceName
from cordwood.log.inbox.background_changes import BackgroundChanges
from cordwood.log.inbox.change_inbox import ChangeInbox
from cordwood.log.inbox.group_changes import GroupChanges
from cordwood.log.inbox.staged_rewrite import StagedRewrite
from cordwood.log.inbox.store_change import (
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
from cordwood.storage.files import FileSystem
from cordwood.storage.staged_file import StagedFile

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.1  # how often to look for other requests while waiting for a long change


class Served(Enum):
    """The state of a request after it was claimed."""

    ANSWERED = "answered"
    BEGUN = "begun"
    PUT_BACK = "put back"


class ServedStore(ChangeableTopics, MaintainedStore, Protocol):
    """What the service needs of a store; see `Store`."""

    @property
    def path(self) -> str: ...
    @property
    def publisher(self) -> Publisher: ...


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
        self._topics = TopicChangeService(store)
        self._upkeep = UpkeepChangeService(store)
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
                content = self.inbox.claim(request_id)
                if content is None:
                    continue
                outcome = self._serve_one(request_id, content)
                if outcome is Served.PUT_BACK:
                    break
                answered += 1 if outcome is Served.ANSWERED else 0
        return answered

    def _serve_one(self, request_id: str, content: bytes) -> Served:
        try:
            request = parse_request(content)
        except FormatError as error:
            return self._finish(request_id, None, _refusal(error))
        change = request.change
        try:
            self._check_deadline(request)
            if isinstance(change, LongChange):
                self._long.begin(
                    request_id,
                    lambda progress: self._attempt(lambda: self._upkeep.make(change, progress)),
                    lambda answer: self._finish_long(request_id, change, answer),
                )
                return Served.BEGUN
        except LogError as error:
            return self._finish(request_id, change, _refusal(error))
        answer = self._attempt(lambda: self._make(request_id, change))
        return self._finish(request_id, change, answer)

    def _finish_long(
        self, request_id: str, change: LongChange, answer: ChangeAnswer | None
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
            self.inbox.put_back(request_id)
            return Served.PUT_BACK
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
        except (CordwoodError, OSError) as error:
            if isinstance(error, LogClosedError) and self._store.is_closed:
                return None
            return _refusal(error)
        except Exception as error:
            # A request must not end the owner's thread, whatever bug it hits.
            logger.exception("a requested change failed")
            return ChangeAnswer(outcome=REFUSED, reason=f"{type(error).__name__}: {error}")

    def _check_deadline(self, request: ChangeRequest) -> None:
        late_ms = self._clock.now_ms() - request.deadline_ms
        if late_ms > 0:
            raise LogError(f"the request came {late_ms} ms after its deadline")

    def _make(self, request_id: str, change: StoreChange) -> ChangeAnswer:
        match change:
            case PublishBatches():
                return self._publish(change)
            case SwapSegments():
                topic = self._store.topic(change.topic)
                log = topic.partition(change.partition)
                paths = [self.inbox.file_path(request_id, file.name) for file in change.files]
                return StagedRewrite(self._fs, log, topic.topic_id, change, paths).run()
            case CommitGroup():
                self._groups.commit(change)
                return ChangeAnswer(outcome=DONE)
            case ForgetGroup():
                self._groups.forget(change)
                return ChangeAnswer(outcome=DONE)
            case RollTopic() | CompactTopic() | ArchiveTopics() | SnapshotStore() | RestoreTopic():
                return self._upkeep.make(change, WorkProgress())
            case _:
                return self._topics.make(change)

    # --- publishing --------------------------------------------------------------------------

    def _publish(self, change: PublishBatches) -> ChangeAnswer:
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
                self._ensure_topic(topic, partitions)
            parts = [self._part(place, size, files) for place, size in sizes.items()]
            published = publisher.publish(change.publication, parts)
        return ChangeAnswer(
            outcome=SKIPPED if published.is_repeated else DONE,
            facts={"offsets": [[*place, *offsets] for place, offsets in published.offsets.items()]},
        )

    def _ensure_topic(self, name: str, partitions: int) -> None:
        with suppress(TopicExistsError):
            self._store.create_topic(name, partitions=partitions)

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
