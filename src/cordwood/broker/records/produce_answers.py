"""Answers to produces that may say which broker leads a partition now (KIP-951)."""

from collections.abc import Sequence

from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.protocol.produce_response import ProducedPart, encode_produce_response
from cordwood.protocol.request_header import RequestHeader


def encode_refusable(
    table: PartitionTable,
    header: RequestHeader,
    parts: Sequence[ProducedPart],
    here: ClientListener,
    *,
    throttle_ms: int = 0,
) -> bytes:
    """The frame of an answer to a client of the listener `here`."""
    if table.cluster is None:
        return encode_produce_response(
            header.api_version, header.correlation_id, parts, throttle_ms=throttle_ms
        )
    parts = [
        part._replace(leader=table.leader_hint(part.error_code, part.topic, part.partition))
        if part.error_code
        else part
        for part in parts
    ]
    return encode_produce_response(
        header.api_version,
        header.correlation_id,
        parts,
        table.addresses((part.leader for part in parts), here),
        throttle_ms,
    )
