"""The objects that stages share: the broker, the clients, Spark, the screen, the recording."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from demo.broker_process import BrokerProcess
from demo.demo_plan import DemoFiles, DemoPlan
from demo.event_producer import EventProducer, LiveFlow
from demo.payment_events import PaymentStream, Tally
from demo.recording import Recording
from demo.screen import Screen
from demo.spark_process import SparkProcess, Totals
from demo.store_watch import StoreWatch


@dataclass(slots=True, kw_only=True)
class Scene:
    """Each stage uses what earlier stages left here.

    producer       exists from the first stage on
    flow           sends events in the background; None while it is off
    spark          None if there is no Spark, or it has failed
    live_totals    the current totals of Spark's stream, after `micro_batches`
    open_things    closed at the end of the run, the last opened first
    """

    plan: DemoPlan
    files: DemoFiles
    recording: Recording
    screen: Screen
    broker: BrokerProcess
    watch: StoreWatch
    stream: PaymentStream
    open_things: ExitStack
    spark: SparkProcess | None = None
    live_totals: Totals = field(default_factory=dict)
    micro_batches: int = 0
    flow: LiveFlow | None = None
    _producer: EventProducer | None = None

    @property
    def tally(self) -> Tally:
        return self.stream.tally

    @property
    def producer(self) -> EventProducer:
        assert self._producer is not None, "the first stage creates it"
        return self._producer

    def connect_producer(self) -> None:
        self._producer = EventProducer(self.broker.address, self.stream, self.recording)
        self.open_things.callback(self._producer.close)

    def start_stream(self) -> None:
        """Let Spark follow the payments as soon as it is ready."""
        if self.spark is not None:
            self.spark.on_totals = self._note_totals
            self.spark.ask("follow")

    def _note_totals(self, totals: Totals) -> None:
        self.micro_batches += 1
        self.live_totals = totals
        self.recording.streamed = sum(count for _, count, _ in totals.values())

    def start_flow(self, rate: int) -> None:
        """Start producing in the background."""
        assert self.flow is None
        self.flow = LiveFlow(self.producer, rate)
        self.open_things.callback(self.flow.stop)
        self.flow.start()

    def stop_flow(self) -> None:
        flow, self.flow = self.flow, None
        if flow is not None:
            flow.stop()
