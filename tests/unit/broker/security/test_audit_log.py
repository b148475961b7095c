"""The audit log: what a line holds, what is left out, and that nothing waits for it."""

import json
import logging
import os
import stat
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.broker.config.audit_config import AuditConfig
from cordwood.broker.security.audit_file import AuditFile
from cordwood.broker.security.audit_log import AuditLog, AuditTarget, LoggerTarget, audit_targets
from cordwood.broker.security.audit_rates import EventRates
from cordwood.broker.security.audit_record import LINE_BYTES_MAX, audit_line, with_dropped
from cordwood.broker.security.security_events import (
    AccessDecision,
    AdministrativeChange,
    Authentication,
    Detail,
    Origin,
    SecurityEvent,
)
from fakes.manual_clock import START_MS, ManualClock

ORIGIN = Origin(principal="User:alice", address="10.0.0.1", listener="EXTERNAL", client_id="app")


def refusal(name: str = "orders", principal: str = "User:alice") -> AccessDecision:
    return AccessDecision(
        origin=Origin(principal=principal, address="10.0.0.1"),
        api="Produce",
        operation="WRITE",
        resource="TOPIC",
        name=name,
        is_allowed=False,
        rule="no rule",
    )


def change(**new: Detail) -> AdministrativeChange:
    return AdministrativeChange(
        origin=ORIGIN,
        api="AlterConfigs",
        operation="ALTER_CONFIGS",
        resource="TOPIC",
        name="orders",
        old={"retention.ms": "1"},
        new=new,
    )


class KeptLines:
    """A target that a test can hold up or break."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.may_write = threading.Event()
        self.may_write.set()
        self.is_closed = False

    def write(self, lines: Sequence[str]) -> None:
        assert self.may_write.wait(60)
        if self.error is not None:
            raise self.error
        self.lines += map(json.loads, lines)

    def close(self) -> None:
        self.is_closed = True


def log_to(*targets: AuditTarget, per_second: int = 1_000_000) -> AuditLog:
    config = AuditConfig(audit_events_per_second=per_second)
    return AuditLog(config, ManualClock(), [*targets, KeptLines()])


# --- lines --------------------------------------------------------------------------------------


def test_a_refusal_says_who_was_refused_what_and_why() -> None:
    assert json.loads(audit_line(refusal(), START_MS)) == {
        "time": "2023-11-14T22:13:20.000Z",
        "event": "access",
        "principal": "User:alice",
        "address": "10.0.0.1",
        "listener": "",
        "client_id": "",
        "api": "Produce",
        "operation": "WRITE",
        "resource": "TOPIC",
        "name": "orders",
        "decision": "denied",
        "rule": "no rule",
    }


def test_a_change_has_the_values_before_and_after() -> None:
    line = json.loads(audit_line(change(**{"retention.ms": "2"}), START_MS, left_out=3))

    assert line["event"] == "change"
    assert line["old"] == {"retention.ms": "1"}
    assert line["new"] == {"retention.ms": "2"}
    assert line["left_out"] == 3


def test_an_authentication_says_how_and_why_it_failed() -> None:
    event = Authentication(
        origin=ORIGIN, mechanism="SCRAM-SHA-256", is_accepted=False, reason="no such user"
    )

    line = json.loads(audit_line(event, START_MS))

    assert (line["mechanism"], line["decision"]) == ("SCRAM-SHA-256", "refused")
    assert line["reason"] == "no such user"


@pytest.mark.parametrize(
    "key",
    ["ssl.keystore.password", "sasl.jaas.config", "client.secret", "salt", "access_token"],
)
def test_values_that_may_be_secrets_are_hidden(key: str) -> None:
    new: dict[str, Detail] = {key: "hunter2", "inner": {key: "hunter2"}}

    line = audit_line(change(**new), START_MS)

    assert "hunter2" not in line
    assert json.loads(line)["new"][key] == "[hidden]"


texts = st.text(max_size=2000)
details = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)


@given(
    name=texts,
    principal=texts,
    values=st.dictionaries(texts, details, max_size=5),
)
def test_a_line_is_one_short_line_of_ascii_whatever_clients_send(
    name: str, principal: str, values: dict[str, Detail]
) -> None:
    event = AdministrativeChange(
        origin=Origin(principal=principal, address="x", client_id=name),
        api="A",
        operation="O",
        resource="R",
        name=name,
        new=values,
    )

    line = audit_line(event, START_MS)

    assert line.isascii()
    assert line.isprintable()
    assert len(line) <= LINE_BYTES_MAX
    assert json.loads(with_dropped(line, 7))["dropped"] == 7


def test_large_tables_are_cut() -> None:
    new: dict[str, Detail] = {f"key-{number}": "x" * 200 for number in range(100_000)}

    line = audit_line(change(**new), START_MS)

    assert len(line) <= LINE_BYTES_MAX


# --- rates --------------------------------------------------------------------------------------


def test_the_next_event_says_how_many_were_left_out() -> None:
    rates = EventRates(2)

    taken = [rates.take("k", 5.0 + number / 10) for number in range(6)]

    assert taken == [0, 0, None, None, None, None]
    assert rates.take("k", 6.0) == 4
    assert rates.take("k", 6.1) == 0
    assert rates.left_out == 4


def test_kinds_are_limited_by_themselves_and_not_remembered_without_end() -> None:
    rates = EventRates(1)

    taken = [rates.take(f"topic-{number}", 1.0) for number in range(50_000)]

    assert set(taken) == {0}
    assert len(rates._counts) <= 10_000


def test_a_client_cannot_fill_the_log_with_many_names() -> None:
    kept = KeptLines()
    log = log_to(kept, per_second=10)

    for number in range(20_000):
        log.report(refusal(f"topic-{number}"))
    log.report(refusal(principal="User:bob"))
    log.stop()

    of_alice = [line for line in kept.lines if line["principal"] == "User:alice"]
    assert len(of_alice) < 2000  # a hundred for each second that the test took
    assert kept.lines[-1]["principal"] == "User:bob"
    assert log.counts().left_out == 20_000 - len(of_alice)


def test_a_client_cannot_fill_the_log_with_many_claimed_users() -> None:
    kept = KeptLines()
    log = log_to(kept, per_second=10)

    for number in range(20_000):
        origin = Origin(principal=f"User:{number}", address="10.0.0.1")
        log.report(Authentication(origin=origin, mechanism="PLAIN", is_accepted=False))
    log.stop()

    assert len(kept.lines) < 2000


def test_no_change_hides_among_others() -> None:
    kept = KeptLines()
    log = log_to(kept, per_second=10)

    for number in range(500):
        log.report(change(number=number))
    log.stop()

    assert [line["new"]["number"] for line in kept.lines] == list(range(500))


# --- the log ------------------------------------------------------------------------------------


def test_events_are_written_in_their_order() -> None:
    kept = KeptLines()
    log = log_to(kept)

    for number in range(100):
        log.report(refusal(f"topic-{number}"))
    log.stop()

    assert [line["name"] for line in kept.lines] == [f"topic-{number}" for number in range(100)]
    assert kept.is_closed
    assert log.counts().written == 100
    assert log.counts().dropped == 0


def test_a_target_that_hangs_holds_up_nobody_and_memory_is_bounded() -> None:
    kept = KeptLines()
    kept.may_write.clear()
    log = log_to(kept)

    began_s = time.monotonic()
    for number in range(30_000):
        log.report(refusal("x" * 30_000, f"User:{number}"))
    took_s = time.monotonic() - began_s

    assert log._queued_bytes < 5 * 1024 * 1024
    dropped = log.counts().dropped
    assert dropped > 10_000
    assert took_s < 30
    kept.may_write.set()
    log.stop(60)
    assert sum(line.get("dropped", 0) for line in kept.lines) == dropped


def test_a_target_that_hangs_does_not_hang_the_stop() -> None:
    kept = KeptLines()
    kept.may_write.clear()
    log = log_to(kept)
    log.report(refusal())

    log.stop(0.01)

    kept.may_write.set()


def test_a_target_that_fails_leaves_the_others_alone_and_is_told_afterwards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing, kept = KeptLines(), KeptLines()
    failing.error = OSError(28, "No space left on device")
    log = log_to(failing, kept)
    written = threading.Event()
    write = kept.write

    def tell(lines: Sequence[str]) -> None:
        write(lines)
        written.set()

    kept.write = tell  # type: ignore[method-assign]  # to wait for it
    with caplog.at_level(logging.ERROR):
        log.report(refusal("a"))
        assert written.wait(60)
        while log.counts().written < 1:
            time.sleep(0.001)
    failing.error = None
    log.report(refusal("b"))
    log.stop()

    assert "No space left on device" in caplog.text
    assert [line["name"] for line in kept.lines] == ["a", "b"]
    assert failing.lines[0]["dropped"] == 1
    assert log.counts().dropped == 1


def test_no_event_is_kept_if_nobody_reads() -> None:
    log = AuditLog(AuditConfig(), ManualClock(), audit_targets(AuditConfig()))

    log.report(refusal())
    log.stop()

    assert log._thread is None


def test_the_logger_has_every_event(caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog(AuditConfig(), ManualClock(), [LoggerTarget()])

    with caplog.at_level(logging.INFO, logger="cordwood.audit"):
        log.report(refusal())
        log.stop()

    (record,) = [record for record in caplog.records if record.name == "cordwood.audit"]
    assert json.loads(record.getMessage())["name"] == "orders"


# --- the file -----------------------------------------------------------------------------------


def written(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    file = AuditFile(str(path))

    file.write(["{}", "{}"])
    file.close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert written(path) == ["{}", "{}"]


def test_lines_go_on_in_a_new_file_after_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    file = AuditFile(str(path))
    file.write(["1"])

    path.rename(tmp_path / "audit.1")
    file.write(["2"])
    path.unlink()
    file.write(["3"])
    file.close()

    assert written(tmp_path / "audit.1") == ["1"]
    assert written(path) == ["3"]


def test_a_line_behind_a_torn_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit"
    file = AuditFile(str(path))
    real, mine = os.write, threading.current_thread()
    calls = iter([4, None])

    def short(fd: int, data: bytes) -> int:
        if threading.current_thread() is not mine:
            return real(fd, data)
        size = next(calls)
        if size is None:
            raise OSError(28, "No space left on device")
        return real(fd, data[:size])

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(OSError, match="No space"):
        file.write(["first line"])
    monkeypatch.setattr(os, "write", real)

    file.write(["second line"])
    file.close()

    assert written(path) == ["firs", "second line"]


def test_a_pipe_without_a_reader_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    with pytest.raises(OSError, match=r"\w"):
        AuditFile(str(path)).write(["1"])


def test_a_directory_that_is_missing_is_an_error_that_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(
        AuditConfig(), ManualClock(), [LoggerTarget(), AuditFile(str(tmp_path / "no" / "audit"))]
    )

    events: list[SecurityEvent] = [refusal()]
    for event in events:
        log.report(event)
    log.stop()

    assert "No such file or directory" in caplog.text
