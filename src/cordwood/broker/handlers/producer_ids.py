"""InitProducerId: ids for idempotent producers. Transactions are not supported."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from cordwood.broker.error_codes import ErrorCode, refusal
from cordwood.broker.net.request import RequestContext, Route, RunsOn
from cordwood.broker.security import access_table as needs
from cordwood.log.topics.producer_ids import ProducerIds
from cordwood.protocol.api_catalog import ApiKey
from cordwood.quantities import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from cordwood.protocol.schemas import offset_messages as messages

logger = logging.getLogger(__name__)

_FIRST_EPOCH: Final = 0


class ProducerIdsHandler:
    """Allocates producer ids. Called by workers, because it sometimes waits for the disk."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def routes(self) -> list[Route]:
        return [
            Route(api=ApiKey.INIT_PRODUCER_ID, handler=self.init_producer_id, runs_on=RunsOn.WORKER)
        ]

    def init_producer_id(
        self, context: RequestContext, request: messages.InitProducerIdRequest
    ) -> messages.InitProducerIdResponseDict:
        """A new id with epoch 0, also for a producer that has an id and asks for its next epoch.

        Such a producer gave up a sequence of batches. With another id its batches start a new
        sequence, and batches under the old id that still arrive cannot be mistaken for them.
        """
        if request.transactional_id is not None:
            if not context.may(needs.INIT_PRODUCER_ID_TRANSACTION, request.transactional_id):
                return _refused(needs.INIT_PRODUCER_ID_TRANSACTION.code)
            return self._refuse_transactions(request)
        if not _may_be_idempotent(context):
            return _refused(needs.INIT_PRODUCER_ID_TOPIC.code)
        has_id = request.producer_id != NO_PRODUCER_ID
        has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
        if has_id != has_epoch:
            return _refused(ErrorCode.invalid_request)
        try:
            producer_id = self._producer_ids.allocate()
        except Exception as error:
            return _refused(refusal(error).code)
        return {
            "error_code": ErrorCode.none,
            "producer_id": producer_id,
            "producer_epoch": _FIRST_EPOCH,
        }

    def _refuse_transactions(
        self, request: messages.InitProducerIdRequest
    ) -> messages.InitProducerIdResponseDict:
        """With the one error that every client treats as final; others are repeated for ever.

        FindCoordinator, which comes first, says the reason. An empty id is always an error.
        """
        if not request.transactional_id:
            return _refused(ErrorCode.invalid_request)
        logger.warning(
            "refused the transactional producer %s: transactions are not supported",
            request.transactional_id,
        )
        return _refused(ErrorCode.transactional_id_authorization_failed)


def _may_be_idempotent(context: RequestContext) -> bool:
    """Who may write to any topic may do it idempotently."""
    if context.may(needs.INIT_PRODUCER_ID_CLUSTER):
        return True
    need, access = needs.INIT_PRODUCER_ID_TOPIC, context.session.access
    if access.allows_anywhere(need.operation, need.resource):
        return True
    access.report(need.api, need.operation, need.resource, "*", is_allowed=False)
    return False


def _refused(code: ErrorCode) -> messages.InitProducerIdResponseDict:
    return {
        "error_code": code,
        "producer_id": NO_PRODUCER_ID,
        "producer_epoch": NO_PRODUCER_EPOCH,
    }
