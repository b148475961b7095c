"""A broker with several listeners: clients are sent to the one that they asked."""

from pathlib import Path

import pytest

from cordwood.protocol.api_catalog import ApiKey
from wire.raw_client import RawClient
from wire.served_listeners import addresses, served
from wire.waiting import await_true

CONFIG = {
    "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0,OTHER://127.0.0.1:0",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,OTHER:PLAINTEXT",
    "advertised.listeners": "INTERNAL://inside.example:19092,EXTERNAL://outside.example:29092",
}


@pytest.mark.parametrize(
    ("number", "host", "port"),
    [(0, "inside.example", 19092), (1, "outside.example", 29092), (2, "127.0.0.1", None)],
)
def test_every_answer_with_an_address_has_that_of_the_listener(
    tmp_path: Path, number: int, host: str, port: int | None
) -> None:
    with served(tmp_path, CONFIG) as server:
        address = addresses(server)[number]
        expected = (host, port or int(address.rpartition(":")[2]))
        with RawClient(address) as client:
            metadata = client.call(ApiKey.METADATA, 12, {"topics": []})
            cluster = client.call(ApiKey.DESCRIBE_CLUSTER, 1, {})

            def coordinators() -> list[tuple[int, str, int]]:
                old = client.call(ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})
                new = client.call(
                    ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": ["g"], "key_type": 0}
                ).coordinators[0]
                return [(found.error_code, found.host, found.port) for found in (old, new)]

            await_true(lambda: coordinators() == [(0, *expected)] * 2)

    for brokers in (metadata.brokers, cluster.brokers):
        assert [(broker.host, broker.port) for broker in brokers] == [expected]
