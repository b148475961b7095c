"""What one client can do to everybody else: nothing, by way of configurations and archives."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.objects.object_store import ObjectStore
from cordwood.archive.store_archives import StoreArchives
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.server import BrokerServer
from cordwood.clock import SystemClock
from cordwood.log.store.archive_port import CACHE_BYTES
from cordwood.log.store.store import Store, StoreSetup
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.storage.files import FileSystem, RealFileSystem
from fakes.client_batches import client_batch
from fakes.silent_objects import SilentObjects
from wire.raw_client import RawClient
from wire.record_requests import Wanted, fetch_body, produce, receive_fetched

BATCH = bytes(client_batch(b"one", b"two"))
TOPIC_RESOURCE = 2


def set_url(client: RawClient, url: str) -> int:
    change = {"name": "archive.url", "config_operation": 0, "value": url}
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": "t", "configs": [change]}
    answer = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    code: int = answer.responses[0].error_code
    return code


def create(client: RawClient, name: str, url: str) -> int:
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": "archive.url", "value": url}],
    }
    code: int = client.call(ApiKey.CREATE_TOPICS, 5, {"topics": [topic]}).topics[0].error_code
    return code


def test_a_client_cannot_make_the_broker_write_somewhere(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with (
        cordwood.Broker(tmp_path / "data", topics=["t"]) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        assert set_url(client, f"file://{target}") == ErrorCode.policy_violation
        assert create(client, "u", f"file://{target}") == ErrorCode.policy_violation
        broker.store.archive_now()

    assert not target.exists()


def test_a_client_may_archive_where_the_operator_allows_it(tmp_path: Path) -> None:
    allowed = f"file://{tmp_path / 'archives'}"
    config = {"archive.url.prefixes": allowed}
    with (
        cordwood.Broker(tmp_path / "data", topics=["t"], config=config) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        assert set_url(client, f"{allowed}/t") == ErrorCode.none
        assert create(client, "u", f"{allowed}/u") == ErrorCode.none
        assert set_url(client, f"{allowed}/../t") == ErrorCode.policy_violation


@pytest.fixture
def silent() -> Iterator[SilentObjects]:
    objects = SilentObjects("s3://silent/archive")
    yield objects
    objects.give_up()


def serve(directory: Path, silent: SilentObjects) -> BrokerServer:
    """A broker with a topic "t", begun at offset 2, whose archive is silent, and a topic "u"."""

    def open_objects(url: str, fs: FileSystem) -> ObjectStore:
        return silent

    fs = RealFileSystem()
    cache = SegmentCache(fs, str(directory / "cache"), bytes_max=CACHE_BYTES)
    archives = StoreArchives(fs=fs, clock=SystemClock(), cache=cache, open_objects=open_objects)
    setup = StoreSetup(archives=archives, free_bytes_min=0)
    store = Store([str(directory / "data")], setup)
    topic = store.create_topic("t", config={"segment.records": 2})
    store.create_topic("u")
    for value in (b"one", b"two", b"three"):
        topic.append(value)
    topic.partition(0).delete_before(2)
    store.alter_topic("t", config={"archive.url": silent.url})
    server = BrokerServer(store, BrokerConfig(port=0, shutdown_timeout_ms=1000), owns_store=True)
    server.start()
    return server


def test_a_silent_archive_delays_neither_other_topics_nor_the_end_of_the_broker(
    tmp_path: Path, silent: SilentObjects
) -> None:
    server = serve(tmp_path, silent)
    try:
        host, port = server.address
        with RawClient(f"{host}:{port}") as client, RawClient(f"{host}:{port}") as other:
            client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic="t", offset=2)]))
            assert silent.called.wait(60)

            assert produce(other, "u", BATCH).error_code == ErrorCode.none
            assert produce(other, "t", BATCH).error_code == ErrorCode.none
            assert receive_fetched(client).responses[0].partitions[0].high_watermark >= 3
    finally:
        began_s = time.monotonic()
        server.stop()

    assert time.monotonic() - began_s < 20
