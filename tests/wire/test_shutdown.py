"""A broker that stops waits for its clients, once."""

import select
import time
from pathlib import Path

import cordwood
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import encode_request
from wire.raw_client import RawClient
from wire.record_requests import Wanted, fetch_body

TIMEOUT_S = 2.0
# More than the kernel keeps for a client that does not read.
RECORD_BYTES = 1024 * 1024
RECORDS = 12


def test_all_steps_of_a_stop_share_one_deadline(tmp_path: Path) -> None:
    config = {"shutdown.timeout.ms": int(TIMEOUT_S * 1000), "message.max.bytes": 2 * RECORD_BYTES}
    broker = cordwood.Broker(tmp_path / "data", topics=["t"], config=config)
    broker.start()
    log = broker.store.topic("t").partition(0)
    for _ in range(RECORDS):
        log.append(bytes(RECORD_BYTES))
    address = broker.bootstrap_servers
    new_topic = {"name": "u", "num_partitions": 1, "replication_factor": 1}
    with (
        RawClient(address, receive_buffer_bytes=4096) as reader,
        RawClient(address) as creator,
        RawClient(address) as bystander,
        broker.store.registry.changing,  # no topic can be created
    ):
        wanted = Wanted(topic="t", offset=0, max_bytes=RECORDS * RECORD_BYTES)
        reader.send(ApiKey.FETCH, 12, fetch_body(12, [wanted]))
        assert select.select([reader.socket], [], [], 60)[0], "no answer begins"
        assert creator.is_answered()
        assert bystander.is_answered()
        request = encode_request(ApiKey.CREATE_TOPICS, 7, {"topics": [new_topic]})
        creator.send(ApiKey.CREATE_TOPICS, 7, request)
        assert bystander.is_answered()  # and so the request before it has begun

        began_s = time.monotonic()
        broker.stop()
        took_s = time.monotonic() - began_s

    assert TIMEOUT_S <= took_s < 2 * TIMEOUT_S  # it waits once for all of them
