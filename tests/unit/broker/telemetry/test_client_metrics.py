"""Clients that send metrics: who is subscribed, how often they may come, what is kept of it."""

import itertools
from collections.abc import Callable
from uuid import UUID

import pytest

from cordwood.broker.telemetry import client_instances, client_metrics
from cordwood.broker.telemetry.client_instances import ACCEPTED_CODECS
from cordwood.broker.telemetry.client_metrics import ClientMetrics
from cordwood.broker.telemetry.subscription import ClientFacts, parse_subscription
from cordwood.errors import ConfigError
from cordwood.format.compression import Codec, compress
from cordwood.protocol.error_code import ErrorCode
from fakes.otlp_bytes import (
    attribute,
    double_point,
    int_point,
    metric,
    metrics_data,
    varint,
)

NO_ID = UUID(int=0)
SUM = varint(2 << 3) + varint(2) + varint(3 << 3) + varint(1)
DELTA = varint(2 << 3) + varint(1) + varint(3 << 3) + varint(1)


class Bench:
    """A broker's clients, and a clock."""

    def __init__(self, bytes_max: int = 10_000) -> None:
        self.now_s = 1000.0
        numbers = itertools.count(100)
        self.clients = ClientMetrics(
            bytes_max=bytes_max, new_id=lambda: UUID(int=next(numbers)), now_s=lambda: self.now_s
        )

    def subscribe(self, **texts: str) -> None:
        keys = {key.replace("_", "."): text for key, text in texts.items()}
        self.clients.subscribe([parse_subscription("s", keys)])

    def ask(self, instance_id: UUID = NO_ID, **facts: str) -> tuple[UUID, int, ErrorCode]:
        given, instance, code = self.clients.ask(instance_id, facts_of(**facts))
        return given, instance.subscription_id, code

    def push(
        self,
        instance_id: UUID,
        subscription_id: int,
        data: bytes = b"",
        *,
        codec: int = Codec.NONE,
        is_terminating: bool = False,
    ) -> ErrorCode:
        return self.clients.push(
            instance_id,
            facts_of(),
            subscription_id=subscription_id,
            codec=codec,
            is_terminating=is_terminating,
            metrics=data,
        )

    def shown(self) -> dict[str, float]:
        return {
            series.name: series.value for client in self.clients.view() for series in client.series
        }


def facts_of(**facts: str) -> Callable[[UUID], ClientFacts]:
    return lambda given: ClientFacts(instance_id=str(given), **{"client_id": "c", **facts})  # type: ignore[arg-type]


def test_a_client_gets_an_id_and_the_metrics_of_all_subscriptions_that_match() -> None:
    bench = Bench()
    bench.clients.subscribe(
        [
            parse_subscription("a", {"metrics": "x.,y.", "interval.ms": "60000"}),
            parse_subscription("b", {"metrics": "z.", "match": "client_id=till-[0-9]+"}),
            parse_subscription("c", {"metrics": "*", "match": "client_software_name=other"}),
        ]
    )

    given, till, _ = bench.clients.ask(NO_ID, facts_of(client_id="till-7"))
    _, office, _ = bench.clients.ask(NO_ID, facts_of(client_id="office"))

    assert given == UUID(int=100)
    assert till.metrics == ["x.", "y.", "z."]
    assert office.metrics == ["x.", "y."]
    assert till.interval_ms == office.interval_ms == 60_000


def test_a_client_that_comes_too_often_is_throttled() -> None:
    bench = Bench()
    bench.subscribe(metrics="*", interval_ms="1000")
    given, subscription, code = bench.ask()
    assert code is ErrorCode.none

    assert bench.ask(given)[2] is ErrorCode.throttling_quota_exceeded
    assert bench.push(given, subscription) is ErrorCode.none
    assert bench.push(given, subscription) is ErrorCode.throttling_quota_exceeded
    bench.now_s += 1
    assert bench.push(given, subscription) is ErrorCode.none
    assert bench.push(given, subscription, is_terminating=True) is ErrorCode.none
    bench.now_s += 1
    assert bench.push(given, subscription) is ErrorCode.invalid_request


def test_a_changed_subscription_is_told_by_an_error_and_the_client_may_ask_at_once() -> None:
    bench = Bench()
    bench.subscribe(metrics="*", interval_ms="1000")
    given, subscription, _ = bench.ask()
    bench.subscribe(metrics="x.", interval_ms="1000")
    bench.now_s += 1

    assert bench.push(given, subscription) is ErrorCode.unknown_subscription_id
    again, fresh, code = bench.ask(given)
    assert (again, code) == (given, ErrorCode.none)
    assert fresh != subscription


def test_bad_pushes_are_refused() -> None:
    bench = Bench(bytes_max=1000)
    bench.subscribe(metrics="*", interval_ms="100")
    given, subscription, _ = bench.ask()
    bomb = compress(Codec.ZSTD, bytes(100_000))

    for data, codec, expected in (
        (bytes(1001), Codec.NONE, ErrorCode.telemetry_too_large),
        (bomb, Codec.ZSTD, ErrorCode.telemetry_too_large),
        (b"\xff\xff", Codec.NONE, ErrorCode.invalid_record),
        (b"not gzip", Codec.GZIP, ErrorCode.invalid_record),
        (b"", 9, ErrorCode.unsupported_compression_type),
    ):
        bench.now_s += 1
        assert bench.push(given, subscription, data, codec=codec) is expected
    assert bench.push(NO_ID, subscription) is ErrorCode.invalid_request
    assert bench.shown() == {}


@pytest.mark.parametrize("codec", [Codec.NONE, *ACCEPTED_CODECS])
def test_values_are_shown_deltas_are_added_up_and_old_ones_expire(codec: Codec) -> None:
    bench = Bench()
    bench.subscribe(metrics="*", interval_ms="1000")
    given, subscription, _ = bench.ask()
    data = metrics_data(
        metric("org.apache.kafka.producer.x.avg", 5, double_point(2.5, attribute("topic", "t"))),
        metric("org.apache.kafka.producer.x.total", 7, int_point(7) + SUM),
        metric("my.own", 7, int_point(3) + DELTA),
    )
    for _ in range(2):
        bench.now_s += 1
        body = compress(codec, data)
        assert bench.push(given, subscription, body, codec=codec) is ErrorCode.none

    assert bench.shown() == {
        "kafka_client_producer_x_avg": 2.5,
        "kafka_client_producer_x_total": 7,
        "kafka_client_my_own_total": 6,
    }
    bench.now_s += 61
    assert bench.shown() == {}
    assert bench.clients._names == {}


def test_series_names_and_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "SERIES_OF_CLIENT_MAX", 3)
    monkeypatch.setattr(client_metrics, "NAMES_MAX", 4)
    monkeypatch.setattr(client_instances, "INSTANCES_MAX", 2)
    bench = Bench()
    bench.subscribe(metrics="*", interval_ms="100")
    for client in range(3):
        given, subscription, _ = bench.ask()
        many = metrics_data(*(metric(f"c{client}.m{n}", 5, int_point(n)) for n in range(5)))
        assert bench.push(given, subscription, many) is ErrorCode.none

    assert len(bench.clients.view()) == 2
    assert len(bench.shown()) <= 4
    assert bench.clients.counts().left_out >= 5
    assert bench.clients.counts().instances == 2


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"match": "client_id"}, "selector=pattern"),
        ({"match": "client_id=a=b"}, "selector=pattern"),
        (
            {
                "match": "client_id=[",
            },
            "regular expression",
        ),
        ({"match": "client_id=" + "x" * 600}, "512"),
        ({"interval.ms": "3600001"}, "interval.ms"),
        ({"metrics": ",".join(map(str, range(1001)))}, "1000"),
        ({"unknown": "1"}, "not a key"),
    ],
)
def test_a_wrong_subscription_is_refused(keys: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_subscription("s", keys)
