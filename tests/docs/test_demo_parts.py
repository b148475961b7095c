"""The parts of the demo in which a mistake would falsify its output."""

from __future__ import annotations

import json
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from .test_snippets import ROOT

sys.path.append(str(ROOT))  # the package `demo` is not installed

from demo.broker_process import BrokerFailedError, BrokerProcess
from demo.group_member import SeenOffsets
from demo.payment_events import CAPTURED, REFUNDED, PaymentEvent, PaymentStream
from demo.recording import ACTIVE, DELETED, SEALED, Counts, Recording, SegmentKey, SegmentLife
from demo.report_page import render_report
from demo.run_charts import nice_step, rates
from demo.store_watch import StoreWatch

AT_MS = 1_700_000_000_000


def events(count: int, *, seed: int = 1) -> tuple[PaymentStream, list[PaymentEvent]]:
    stream = PaymentStream(seed=seed, account_count=50)
    return stream, [stream.next_event(AT_MS + number) for number in range(count)]


def test_the_same_seed_makes_the_same_events() -> None:
    _, first = events(500)
    _, second = events(500)
    _, other = events(500, seed=2)

    assert first == second
    assert first != other


def test_the_tally_is_what_the_values_of_the_events_add_up_to() -> None:
    stream, made = events(5_000)
    bodies = [json.loads(event.value) for event in made]

    earned: dict[str, int] = {}
    for body in bodies:
        sign = {CAPTURED: 1, REFUNDED: -1}.get(body["kind"], 0)
        earned[body["merchant"]] = earned.get(body["merchant"], 0) + sign * body["amount"]

    assert [body["event"] for body in bodies] == list(range(5_000))
    assert {name: amount for name, (_, _, amount) in stream.tally.table().items()} == earned
    assert {body["kind"] for body in bodies} == {"authorised", CAPTURED, REFUNDED}


def test_events_come_late_and_out_of_order_and_with_the_key_of_their_account() -> None:
    stream, made = events(5_000)
    times = [event.timestamp_ms for event in made]

    assert stream.tally.late == sum(at_ms < AT_MS - 50_000 for at_ms in times) > 0
    assert times != sorted(times)
    assert all(json.loads(event.value)["account"].encode() == event.key for event in made)


def test_the_newest_value_of_an_account_is_that_of_its_last_change() -> None:
    stream, made = events(20_000)

    newest: dict[bytes, bytes | None] = {}
    for event in made:
        if event.change is not None:
            newest[event.key] = None if event.closes else event.change

    assert newest == stream.tally.accounts
    assert None in newest.values()


def test_offsets_that_were_never_read_are_missing() -> None:
    seen = SeenOffsets()
    for offset in (0, 1, 3, 3):
        seen.add(0, offset)

    assert seen.missing_below(0, 4) == 1
    assert (seen.count, seen.repeated, seen.end(0)) == (3, 1, 4)
    assert seen.missing_below(1, 2) == 2


@pytest.mark.parametrize(("extent", "step"), [(1.0, 0.1), (95.0, 10.0), (130.0, 20.0), (9, 1.0)])
def test_an_axis_has_round_steps(extent: float, step: float) -> None:
    assert nice_step(extent, 10) == pytest.approx(step)


def test_a_rate_is_that_of_the_last_second() -> None:
    counts = [
        Counts(at_s=at_s, acknowledged=acknowledged, consumed=0, streamed=0)
        for at_s, acknowledged in ((0.0, 0), (1.0, 100), (2.0, 100), (3.0, 400))
    ]

    assert rates(counts) == [(1.0, 100.0), (2.0, 0.0), (3.0, 300.0)]


def test_a_segment_that_is_not_seen_again_was_deleted() -> None:
    recording = Recording()
    first, second = SegmentKey("orders", 0, 0), SegmentKey("orders", 0, 10)

    recording.see_segments({first: (ACTIVE, 10, 5)})
    recording.see_segments({first: (SEALED, 20, 10), second: (ACTIVE, 1, 11)})
    recording.see_segments({second: (ACTIVE, 2, 12)})

    assert [state for _, state in recording.lives[first].states] == [ACTIVE, SEALED, DELETED]
    assert [state for _, state in recording.lives[second].states] == [ACTIVE]


def test_a_broken_promise_is_shown_as_one_and_text_is_escaped() -> None:
    recording = Recording()
    with recording.span("Kill"):
        recording.check("nothing <acknowledged> was lost", False)

    page = render_report(recording, [])

    assert '<li class="broken">nothing &lt;acknowledged&gt; was lost</li>' in page
    assert "0 of 1 promises held" in page


class LivesOfOthers(dict[SegmentKey, SegmentLife]):
    """Looks at each new life at once, as another thread may."""

    def __setitem__(self, key: SegmentKey, life: SegmentLife) -> None:
        assert life.states[-1][1] == ACTIVE
        super().__setitem__(key, life)

    def setdefault(self, key: SegmentKey, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]


def test_whoever_finds_a_segment_finds_its_state() -> None:
    recording = Recording()
    recording.lives = LivesOfOthers()

    recording.see_segments({SegmentKey("orders", 0, 0): (ACTIVE, 10, 5)})

    assert len(recording.lives) == 1


def test_what_was_seen_earlier_is_recorded_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording()
    watch = StoreWatch(tmp_path, ("orders",), recording)
    key = SegmentKey("orders", 0, 0)
    views = [{key: (SEALED, 20, 10)}, {key: (ACTIVE, 10, 5)}]
    is_looking, may_go_on = threading.Event(), threading.Event()

    def seen(_: StoreWatch) -> dict[SegmentKey, tuple[str, int, int]]:
        view = views.pop()
        if view[key][0] == ACTIVE:
            is_looking.set()
            may_go_on.wait(30)
        return view

    monkeypatch.setattr(StoreWatch, "_seen", seen)
    looks = [threading.Thread(target=watch.look) for _ in range(2)]
    looks[0].start()
    assert is_looking.wait(30)
    looks[1].start()
    looks[1].join(0.05)  # long enough, if it does not wait for the first
    may_go_on.set()
    for each in looks:
        each.join(30)

    assert [state for _, state in recording.lives[key].states] == [ACTIVE, SEALED]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep a port")
def test_nobody_else_gets_the_port_of_a_broker_that_is_down(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "store", tmp_path / "broker.log")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", broker.port))

    broker.close()

    with socket.socket() as other:
        other.bind(("127.0.0.1", broker.port))


STARTED = b'{"event": "started", "address": "127.0.0.1:1"}\n'


class LoggingProcess:
    """Writes the rest of its line while somebody reads the first part."""

    def __init__(self, log: Path, written: list[bytes], status: int | None) -> None:
        self._log = log
        self._written = written
        self._status = status

    def poll(self) -> int | None:
        if self._written:
            with self._log.open("ab") as log:
                log.write(self._written.pop(0))
        return None if self._written else self._status


def test_a_line_of_the_log_that_is_half_written_is_read_later(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "store", tmp_path / "broker.log")
    process: Any = LoggingProcess(broker.log, [b"", STARTED[:30], STARTED[30:]], None)
    broker.close()
    broker.log.write_bytes(b"")

    facts = broker._wait_until_started(process, 0, float("inf"))

    assert facts["address"] == "127.0.0.1:1"


def test_a_broker_that_ends_in_the_middle_of_a_line_did_not_start(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "store", tmp_path / "broker.log")
    process: Any = LoggingProcess(broker.log, [STARTED[:30]], 1)
    broker.close()
    broker.log.write_bytes(b"")

    with pytest.raises(BrokerFailedError, match="did not start"):
        broker._wait_until_started(process, 0, float("inf"))
