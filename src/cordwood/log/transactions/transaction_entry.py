"""What the coordinator holds for one transactional id, and one request about it."""

from collections import deque
from collections.abc import Callable
from typing import Final

from cordwood.format.transaction_records import TopicPartition
from cordwood.log.transactions.transaction_machine import Decision, Refused
from cordwood.log.transactions.transaction_metadata import ProducerIdentity, TransactionMetadata
from cordwood.quantities import ProducerId, TimestampMs
from cordwood.value_class import dataclass

# Requests about one id that may wait for it. A producer has one or two under way.
WAITERS_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The request was carried out. `identity` is what the producer uses from now on."""

    identity: ProducerIdentity
    lease: "Lease | None" = None


Outcome = Granted | Refused
Done = Callable[[Outcome], None]
Decide = Callable[[TransactionMetadata | None, TimestampMs, ProducerId | None], Decision]


@dataclass(slots=True, kw_only=True, eq=False)
class Ask:
    """A request on its way. Belongs to the coordinator, under its lock.

    done          called once, by any thread, without a lock; it must return at once
    takes_lease   the transaction stays open until the lease is released
    deadline_s    when it is refused if it still waits, by the monotonic clock
    gives_up      it is refused if markers that it waits for cannot be written now
    is_brief      it does not wait for markers: another broker sends it again
    is_thorough   it is answered when the markers are written, not when the end is decided
    """

    transactional_id: str
    decide: Decide
    done: Done
    deadline_s: float
    takes_lease: bool = False
    gives_up: bool = False
    is_brief: bool = False
    is_thorough: bool = False
    is_fencing: bool = False  # it wants the transaction aborted, and nothing after that
    fresh_id: ProducerId | None = None


class TransactionEntry:
    """One transactional id. Owned by the coordinator, under its lock.

    metadata   what counts; None while the first record of the id is written
    pending    what is being written; until then nobody else is heard
    asker      the request that waits for that
    leases     appends under way that belong to the open transaction: no marker before they end
    waiters    requests that wait for `pending`, or for the markers
    unmarked   partitions of a prepared transaction that have no marker yet
    loaded     the producer when the id was loaded, as it goes on; None: the id is younger
    floor      the highest epoch that a log had of this producer; see `transaction_machine.raised`
    """

    __slots__ = (
        "asker",
        "floor",
        "has_failed",
        "leases",
        "loaded",
        "metadata",
        "needs_new_id",
        "next_line_s",
        "pending",
        "unmarked",
        "waiters",
    )

    def __init__(self, metadata: TransactionMetadata | None = None) -> None:
        self.metadata = metadata
        self.pending: TransactionMetadata | None = None
        self.asker: Ask | None = None
        self.leases: list[Lease] = []
        self.waiters: deque[Ask] = deque()
        self.unmarked: frozenset[TopicPartition] = frozenset()
        self.has_failed = False  # some markers could not be written; they are tried again
        self.next_line_s = 0.0  # when a line about fenced producers may be logged
        self.loaded: ProducerIdentity | None = None
        self.floor: ProducerIdentity | None = None
        # Whether a log that is missing may have later epochs of its producer.
        self.needs_new_id = False

    @property
    def is_idle(self) -> bool:
        return self.pending is None and not self.waiters and not self.leases


class Lease:
    """An append into an open transaction. Release it when the records are in the log."""

    __slots__ = ("_release", "entry")

    def __init__(self, entry: TransactionEntry, release: "Callable[[Lease], None]") -> None:
        self.entry = entry
        self._release = release

    def release(self) -> None:
        """Any thread; safe to repeat, also after an interrupt."""
        self._release(self)
