"""What the processes of a node have in common, and how they differ."""

import pytest

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.security_config import SecurityConfig
from cordwood.broker.config.store_config import StoreConfig
from cordwood.broker.observing.log_output import LogOutputConfig
from cordwood.broker.processes.process_task import NodeConfig, ProcessTask, check_ports
from cordwood.broker.processes.supervisor import check_processes
from cordwood.errors import ConfigError
from cordwood.log.rules.topic_config import TopicConfig


def node(**settings: object) -> NodeConfig:
    security = {
        name: value for name, value in settings.items() if name.startswith(("authorizer", "audit"))
    }
    broker = BrokerConfig(**{n: v for n, v in settings.items() if n not in security})  # type: ignore[arg-type]
    return NodeConfig(
        broker=broker,
        security=SecurityConfig.assemble(
            broker, {name.replace("_", "."): value for name, value in security.items()}
        ),
        store=StoreConfig(log_dirs=("data",)),
        topic_defaults=TopicConfig(),
        log_output=LogOutputConfig(),
    )


def test_each_process_has_the_id_and_the_ports_of_the_node_plus_its_number() -> None:
    config = node(node_id=7, port=9092, metrics_port=9600, advertised_port=19092)

    third = config.of_worker(2)

    assert third.broker.node_id == 9
    assert third.broker.metrics_port == 9602
    [listener] = third.security.listeners
    assert (listener.listener.port, listener.advertised.port) == (9094, 19094)


def test_any_free_port_stays_any_free_port() -> None:
    third = node(port=0, metrics_port=0).of_worker(2)

    assert third.security.listeners[0].listener.port == 0
    assert third.broker.metrics_port == 0


def test_a_task_survives_the_way_to_its_process() -> None:
    task = ProcessTask(config=node(), index=1, count=2, epoch=5, listening={"PLAINTEXT": 7})

    assert ProcessTask.decode(task.encode()) == task


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:9092,OTHER://127.0.0.1:9093",
          "listener_security_protocol_map": "OTHER:PLAINTEXT"}, "9093"),
        ({"port": 9092, "metrics_port": 9093}, "9093"),
        ({"port": 65535}, "65536"),
    ],
)  # fmt: skip
def test_ports_that_collide_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_ports(node(**settings), 2)


@pytest.mark.parametrize(
    ("settings", "count", "message"),
    [
        ({}, 0, "1 to 64"),
        ({}, 65, "1 to 64"),
        ({"audit_topic": "audit"}, 2, "audit.topic"),
    ],
)
def test_what_several_processes_do_not_serve_is_refused(
    settings: dict[str, object], count: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_processes(node(**settings), count)
