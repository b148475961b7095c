"""A disk that fails under a broker: everybody is told, and the other directory is served."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.server import BrokerServer
from cordwood.log.store.store import Store, StoreSetup
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from fakes.client_batches import client_batch
from fakes.gated_fs import GatedFileSystem
from wire.raw_client import RawClient
from wire.record_requests import Wanted, fetch, produce

BATCH = bytes(client_batch(b"one", b"two"))


class TwoDiskBroker:
    """A broker over two directories: topic "lost" is in the one that fails, "kept" is not."""

    def __init__(self, root: Path) -> None:
        self.fs = GatedFileSystem("/bad/")
        self.bad, self.good = str(root / "bad"), str(root / "good")
        self.store = Store([self.bad, self.good], StoreSetup(fs=self.fs, free_bytes_min=0))
        for name in ("lost", "kept"):
            self.store.create_topic(name)
        assert self.store.topic("lost").partition(0).directory.startswith(self.bad)
        config = BrokerConfig(port=0, metrics_port=0)
        self.server = BrokerServer(self.store, config, owns_store=True)
        self.server.start()

    def get(self, path: str) -> tuple[int, str]:
        assert self.server.metrics_address is not None
        connection = http.client.HTTPConnection(*self.server.metrics_address, timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TwoDiskBroker]:
    started = TwoDiskBroker(tmp_path)
    yield started
    started.fs.writes.error = started.fs.syncs.error = None
    started.server.stop()


@pytest.mark.parametrize("failing", ["writes", "syncs"])
def test_a_failing_disk_is_reported_everywhere_and_the_other_one_goes_on(
    broker: TwoDiskBroker, failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = broker.server.address
    with RawClient(f"{host}:{port}") as client:
        assert produce(client, "lost", BATCH).error_code == 0
        getattr(broker.fs, failing).error = OSError(5, "Input/output error")

        for _ in range(2):
            assert produce(client, "lost", BATCH).error_code == ErrorCode.kafka_storage_error
            assert produce(client, "kept", BATCH).error_code == 0

        topics = client.call(ApiKey.METADATA, 9, {"topics": None}).topics
        (lost,) = next(t for t in topics if t.name == "lost").partitions
        (kept,) = next(t for t in topics if t.name == "kept").partitions
        assert lost.error_code == ErrorCode.kafka_storage_error
        assert lost.offline_replicas == (lost.leader_id,)
        assert (kept.error_code, kept.offline_replicas) == (0, ())
        described = client.call(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}).results
        codes = {result.log_dir: result.error_code for result in described}
        assert codes == {broker.bad: ErrorCode.kafka_storage_error, broker.good: 0}
        (read,) = fetch(client, [Wanted(topic="lost")]).responses
        assert (read.partitions[0].error_code, read.partitions[0].high_watermark) == (0, 2)
    status, content = broker.get("/readyz")
    assert status == 503
    assert f"{broker.bad} cannot be used" in json.loads(content)["problems"][0]
    _, metrics = broker.get("/metrics")
    assert f'cordwood_directory_online{{directory="{broker.bad}"}} 0.0' in metrics
    assert f'cordwood_directory_failed_partitions{{directory="{broker.bad}"}} 1.0' in metrics
    assert f'cordwood_directory_online{{directory="{broker.good}"}} 1.0' in metrics
    assert f"data directory {broker.bad} is offline" in caplog.text
