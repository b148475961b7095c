"""A thousand clients reconnect over TLS at once, while a member of a group sends heartbeats.

The member must stay in its group. Its heartbeats share the server with a thousand handshakes.
"""

import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.broker_servers import OS, BrokerServer
from bench.broker_stage import CORDWOOD, Stage, figure_row
from bench.kafka_wire import AnswerError
from bench.measure import Context, Row, Target, measure_in_turns, samples
from bench.process_tree import tree_cpu_seconds
from bench.wire_load import HOST
from cordwood.protocol.api_catalog import ApiKey
from wire.raw_client import RawClient
from wire.tls_client import TlsClient

CLIENTS: Final = 1_000
P99_MS: Final = 100.0

_ROOT: Final = Path(__file__).resolve().parent.parent
_GROUP: Final = "bench"
_SESSION_MS: Final = 10_000
_PAUSE_S: Final = 0.005  # between two heartbeats
_JOIN_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """What one server did with the clients that came at once."""

    seconds: float  # until the last client was answered
    cpu_ms: float | None  # for each client
    p99_ms: float  # of heartbeats meanwhile


def reconnect_rows(context: Context, stage: Stage) -> list[Row]:
    servers = stage.servers(context)
    storms = measure_in_turns(
        {server.label(OS): partial(_storm, server) for server in servers},
        runs=context.runs,
    )
    p99 = {name: samples(name, [storm.p99_ms for storm in each]) for name, each in storms.items()}
    judge = stage.judge(OS)
    title = f"TLS: {CLIENTS:,} clients connect at once"
    rows = [
        Row(
            title=f"{title}, p99 of a member's heartbeats",
            durability="-",
            unit="ms",
            cordwood=p99[CORDWOOD],
            limit=None if judge is None else p99[judge],
            target=Target(bound=P99_MS),
            is_lower_better=True,
            note=stage.note(
                f"a heartbeat every {_PAUSE_S * 1000:.0f} ms; the member stays in its group",
                "Kafka",
            ),
        ),
        figure_row(
            f"{title}, until the last is answered",
            "-",
            "s",
            {name: [storm.seconds for storm in each] for name, each in storms.items()},
            judge=judge,
            ratio=1.0,
            is_lower_better=True,
            note="from connecting to ApiVersions; the clients' own work is part of this time",
        ),
    ]
    cpu = {name: [s.cpu_ms for s in each if s.cpu_ms is not None] for name, each in storms.items()}
    if all(cpu.values()):
        rows.append(
            figure_row(f"{title}, server's CPU", "-", "ms/client", cpu, is_lower_better=True)
        )
    return rows


def _storm(server: BrokerServer) -> Storm:
    assert server.tls is not None
    with TlsClient(f"{HOST}:{server.port}", server.tls.context) as member:
        beat = _join(member)
        command = [sys.executable, "-m", "bench.reconnect_storm"]
        storm = subprocess.Popen(
            [*command, str(server.port), str(server.tls.ca), str(CLIENTS)],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert storm.stdout is not None
            storm.stdout.readline()  # until its program is loaded
            cpu_before = tree_cpu_seconds(server.pid)
            taken_ms = _heartbeats_ms(member, beat, storm)
            printed, _ = storm.communicate()
        finally:
            storm.kill()
            storm.wait()
        cpu_after = tree_cpu_seconds(server.pid)
        _leave(member, beat)
    if storm.returncode != 0:
        raise AnswerError(f"the clients of {server.name} failed: {storm.returncode}")
    cpu_ms = None
    if cpu_before is not None and cpu_after is not None:
        cpu_ms = (cpu_after - cpu_before) / CLIENTS * 1000
    return Storm(
        seconds=float(printed),
        cpu_ms=cpu_ms,
        p99_ms=sorted(taken_ms)[len(taken_ms) * 99 // 100],
    )


def _heartbeats_ms(
    member: RawClient, beat: dict[str, object], storm: "subprocess.Popen[str]"
) -> list[float]:
    """Until the storm is over. Raises `AnswerError` if the member is no longer in its group."""
    taken_ms: list[float] = []
    while storm.poll() is None:
        started = time.perf_counter()
        error = member.call(ApiKey.HEARTBEAT, 0, beat).error_code
        taken_ms.append((time.perf_counter() - started) * 1000)
        if error:
            raise AnswerError(f"a heartbeat was answered with error {error}")
        time.sleep(_PAUSE_S)
    return taken_ms


def _join(member: RawClient) -> dict[str, object]:
    """The heartbeat of a member of a group that is stable."""
    join = {
        "group_id": _GROUP,
        "session_timeout": _SESSION_MS,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    deadline = time.monotonic() + _JOIN_TIMEOUT_S
    while True:
        # A server may create its topic of groups now.
        member.call(ApiKey.FIND_COORDINATOR, 0, {"key": _GROUP})
        joined = member.call(ApiKey.JOIN_GROUP, 0, join)
        if not joined.error_code:
            break
        if time.monotonic() > deadline:
            raise AnswerError(f"JoinGroup was answered with error {joined.error_code}")
        time.sleep(0.1)
    beat = {
        "group_id": _GROUP,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
    }
    assigned = [{"member_id": joined.member_id, "assignment": b""}]
    error = member.call(ApiKey.SYNC_GROUP, 0, {**beat, "assignments": assigned}).error_code
    if error:
        raise AnswerError(f"SyncGroup was answered with error {error}")
    return beat


def _leave(member: RawClient, beat: dict[str, object]) -> None:
    """So that the next member does not wait for this one."""
    wanted = {"group_id": _GROUP, "member_id": beat["member_id"]}
    error = member.call(ApiKey.LEAVE_GROUP, 0, wanted).error_code
    if error:
        raise AnswerError(f"the member was not in its group any more: error {error}")
