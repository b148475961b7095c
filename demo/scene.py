"""What the stages of a run share: the broker, the clients, Spark, the screen and the recording."""

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
    """Each stage finds in it what those before it left.

    producer       there from the first stage on
    flow           events that are produced in the background; None while there are none
    spark          None where there is no Spark, or no more
    live_totals    what Spark's stream came to so far, after so many micro-batches
    open_things    closed at the end, the last opened first, however the run ends
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
        assert self._producer is not None, "the first stage makes it"
        return self._producer

    def connect_producer(self) -> None:
        self._producer = EventProducer(self.broker.address, self.stream, self.recording)
        self.open_things.callback(self._producer.close)

    def start_stream(self) -> None:
        """Have Spark follow the payments as soon as it is up."""
        if self.spark is not None:
            self.spark.on_totals = self._note_totals
            self.spark.ask("follow")

    def _note_totals(self, totals: Totals) -> None:
        self.micro_batches += 1
        self.live_totals = totals
        self.recording.streamed = sum(count for _, count, _ in totals.values())

    def start_flow(self, rate: int) -> None:
        """Produce in the background from now on."""
        assert self.flow is None
        self.flow = LiveFlow(self.producer, rate)
        self.open_things.callback(self.flow.stop)
        self.flow.start()

    def stop_flow(self) -> None:
        flow, self.flow = self.flow, None
        if flow is not None:
            flow.stop()
