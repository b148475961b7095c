"""The metrics that clients have sent (KIP-714), for Prometheus. One place shows every client."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cordwood.broker.observing.observed_broker import ObservedBroker

_TOTAL = "_total"


class ClientCollector(Collector):
    """Series of clients, each with the labels client_id and client_instance_id."""

    def __init__(self, broker: ObservedBroker) -> None:
        self._clients = broker.clients

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        if self._clients is None:
            return
        counts = self._clients.counts()
        yield _family(
            GaugeMetricFamily(
                "cordwood_telemetry_clients",
                "Clients that asked which metrics to send, and are still heard of.",
            ),
            counts.instances,
        )
        yield _family(
            CounterMetricFamily("cordwood_telemetry_pushes", "Pushes of metrics by clients."),
            counts.pushes,
        )
        yield _family(
            CounterMetricFamily(
                "cordwood_telemetry_left_out",
                "Values that clients sent and that are not shown: of other kinds than gauge and "
                "sum, or beyond a limit.",
            ),
            counts.left_out,
        )
        refused = CounterMetricFamily(
            "cordwood_telemetry_refused", "Requests of clients that were refused.", labels=["error"]
        )
        for code, count in sorted(counts.refused.items()):
            refused.add_metric([code.name], count)
        yield refused
        yield from self._of_clients()

    def _of_clients(self) -> Iterator[Metric]:
        assert self._clients is not None
        info = GaugeMetricFamily(
            "kafka_client_info",
            "A client that sends metrics.",
            labels=[
                "client_id",
                "client_instance_id",
                "client_software_name",
                "client_software_version",
                "client_address",
            ],
        )
        families: dict[str, Metric] = {}
        for client in self._clients.view():
            facts = client.facts
            info.add_metric(
                [
                    facts.client_id,
                    facts.instance_id,
                    facts.software_name,
                    facts.software_version,
                    facts.address,
                ],
                1,
            )
            ours = {"client_id": facts.client_id, "client_instance_id": facts.instance_id}
            for series in client.series:
                kind = "counter" if series.is_counter else "gauge"
                name = series.name.removesuffix(_TOTAL) if series.is_counter else series.name
                family = families.get(name)
                if family is None:
                    family = families[name] = Metric(name, "Sent by clients.", kind)
                if family.type == kind:
                    family.add_sample(series.name, {**ours, **dict(series.labels)}, series.value)
        yield info
        for name in sorted(families):
            yield families[name]


def _family(family: Metric, value: float) -> Metric:
    family.add_sample(
        f"{family.name}{_TOTAL}" if family.type == "counter" else family.name, {}, value
    )
    return family
