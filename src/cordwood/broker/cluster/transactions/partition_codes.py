"""Requests about many partitions to another broker: how they are grouped, how answers are read."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cordwood.broker.net.outbound.outbound_call import OutboundResult
from cordwood.errors import CordwoodError, FormatError
from cordwood.format.transaction_records import TopicPartition
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_response

logger = logging.getLogger(__name__)

# Whose transaction it is (a producer or a transactional id), the topic, the partition.
PartitionCodes = Mapping[tuple[int | str, str, int], ErrorCode]


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions of each topic, in the order in which they come."""
    found: dict[str, list[int]] = {}
    for topic, number in places:
        found.setdefault(topic, []).append(number)
    return found


def read_codes(
    result: OutboundResult,
    *,
    node_id: int,
    api: ApiKey,
    codes_of: Callable[[Any], PartitionCodes | ErrorCode],
) -> PartitionCodes | ErrorCode:
    """What a broker answered, by partition; one code if it is about all of them.

    NETWORK_EXCEPTION if it did not answer, or not in a way that can be read. `codes_of` may raise
    `ValueError`: a code that nobody knows.
    """
    if isinstance(result, CordwoodError):
        return ErrorCode.network_exception
    try:
        return codes_of(decode_response(api, *result))
    except (FormatError, ValueError) as error:
        logger.warning("broker %d answered %s with garbage: %s", node_id, api.name, error)
        return ErrorCode.network_exception


def code_of(
    codes: PartitionCodes | ErrorCode, owner: int | str, place: TopicPartition
) -> ErrorCode:
    """The code of one partition. What an answer lacks was not answered."""
    if isinstance(codes, ErrorCode):
        return codes
    return codes.get((owner, *place), ErrorCode.network_exception)
