"""Our control channel and Kafka's own controllers: one controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordwood.cluster.control.broker_lifecycle import Phase
from interop.control_member import ControlMember
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers

CREATE = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(scope="module")
def controllers(
    kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KraftControllers]:
    with KraftControllers(kafka, tmp_path_factory.mktemp("kraft")) as running:
        yield running


def test_a_broker_registers_and_is_unfenced(controllers: KraftControllers) -> None:
    with ControlMember(controllers.bootstrap, controllers.cluster_id, node_id=1) as member:
        member.wait_until(Phase.RUNNING)
        image = member.wait_for_image(
            lambda image: 1 in image.brokers and not image.brokers[1].is_fenced
        )

        assert image.brokers[1].epoch == member.control.broker_epoch
        assert image.brokers[1].directories == member.directories
        assert image.features["metadata.version"] == 30
