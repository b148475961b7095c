"""The short way of transactional producers: they add a partition, and end a transaction.

Each transaction of librdkafka sends both requests. They are read where they were received, decided
in the data loop, which also writes the records about them (`records.transaction_rounds`), and
answered from there. Whatever is unusual, refused by rules or under quotas takes the long way
(`handlers.transactions`), which says what is right.
"""

from typing import Final

from cordwood.broker.cluster_view import ClusterView
from cordwood.broker.error_codes import ErrorCode, transaction_code
from cordwood.broker.net.requests.answer import Answer, Connection
from cordwood.broker.net.requests.request_metrics import RequestMetrics
from cordwood.broker.net.routing.request_router import RequestRouter
from cordwood.broker.security import access_table as needs
from cordwood.broker.security.access_table import Need
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.log.transactions.transaction_entry import Granted, Outcome
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    ProducerIdentity,
)
from cordwood.log.transactions.transaction_requests import TransactionRequests
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.request_header import RequestHeader
from cordwood.protocol.sole_transaction import (
    SoleAdd,
    SoleEnd,
    encode_added,
    encode_ended,
    find_sole_add,
    find_sole_end,
)
from cordwood.quantities import ProducerId

_ADD: Final = int(ApiKey.ADD_PARTITIONS_TO_TXN)
_END: Final = int(ApiKey.END_TXN)
_FIRST_FENCED: Final = 2  # the first version whose clients know PRODUCER_FENCED
_FIRST_END_WITH_EPOCH: Final = 5


class TransactionFrames:
    """Runs in the data loop, where the connections of transactional producers live."""

    def __init__(
        self,
        coordinator: TransactionRequests,
        view: ClusterView,
        router: RequestRouter,
        metrics: RequestMetrics,
        *,
        closed_topics: frozenset[str] = frozenset(),
    ) -> None:
        self._coordinator = coordinator
        self._view = view
        self._router = router
        self._metrics = metrics
        self._closed_topics = closed_topics

    def start(self, connection: Connection, data: memoryview, begin: int, end: int) -> None:
        """Handle the request in ``data[begin:end]``, the short way if that is possible."""
        if self._router.quotas.is_set or not self.take(connection, data, begin, end):
            self._router.start_route(connection, data, begin, end)

    def take(self, connection: Connection, data: memoryview, begin: int, end: int) -> bool:
        """Whether the request in ``data[begin:end]`` was taken, and will be answered.

        If not, nothing was done. Not asked under quotas.
        """
        key = int.from_bytes(data[begin : begin + 2], "big")
        if key == _END:
            ended = find_sole_end(data, begin, end)
            return ended is not None and self._end(connection, ended)
        added = find_sole_add(data, begin, end)
        return added is not None and self._add(connection, added)

    def _add(self, connection: Connection, request: SoleAdd) -> bool:
        name = request.name.decode(errors="replace")
        topic = self._view.topic(name)
        partitions = request.partitions
        if (
            topic is None
            or not 0 <= min(partitions) <= max(partitions) < topic.partition_count
            or name in INTERNAL_TOPICS
            or name in self._closed_topics
            or not _may(connection, needs.ADD_PARTITIONS_TO_TXN, request.transactional_id)
            or not _may(connection, needs.ADD_PARTITIONS_TO_TXN_TOPIC, name)
        ):
            return False
        answer = _begin(connection, _ADD, request)

        def done(outcome: Outcome) -> None:
            code = ErrorCode.none
            if not isinstance(outcome, Granted):
                knows_fencing = request.version >= _FIRST_FENCED
                code = transaction_code(outcome.reason, knows_fencing=knows_fencing)
            answer.give((encode_added(request, code),))

        self._coordinator.add_partitions(
            request.transactional_id,
            _identity(request),
            frozenset([(name, number) for number in partitions]),
            client_version=0,
            done=done,
        )
        return True

    def _end(self, connection: Connection, request: SoleEnd) -> bool:
        if not _may(connection, needs.END_TXN, request.transactional_id):
            return False
        answer = _begin(connection, _END, request)

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Granted):
                identity = outcome.identity
                frame = encode_ended(request, 0, identity.producer_id, identity.epoch)
            else:
                knows_fencing = request.version >= _FIRST_FENCED
                code = transaction_code(outcome.reason, knows_fencing=knows_fencing)
                self._metrics.failed(_END, code)
                frame = encode_ended(request, code)
            answer.give((frame,))

        has_epoch = request.version >= _FIRST_END_WITH_EPOCH
        self._coordinator.end(
            request.transactional_id,
            _identity(request),
            is_commit=request.is_commit,
            client_version=EPOCH_BUMPING_VERSION if has_epoch else 0,
            done=done,
        )
        return True


def _begin(connection: Connection, api_key: int, request: SoleAdd | SoleEnd) -> Answer:
    return Answer(connection, RequestHeader(api_key, request[0], request[1], None))


def _identity(request: SoleAdd | SoleEnd) -> ProducerIdentity:
    return ProducerIdentity(producer_id=ProducerId(request.producer_id), epoch=request.epoch)


def _may(connection: Connection, need: Need, name: str) -> bool:
    """Whether the client may. If not, the long way refuses it, and reports that."""
    access = connection.session.access
    return access.is_unlimited or access.allows(need.operation, need.resource, name)
