"""What access rules cost: one decision, and produce with many rules beside produce without."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from bench.broker_produce_rows import size_name, workload
from bench.broker_producers import Workload, wire_produce
from bench.broker_servers import OS, BrokerServer, CordwoodServer, new_topic, running
from bench.broker_stage import CORDWOOD, Load, Stage, cpu_rows, load_row, measure_loads
from bench.measure import Context, Row, Target, measure_row
from bench.workload import fresh_path
from cordwood.protocol.acl_codes import AclOperation, AclResource
from cordwood.quantities import KIB
from cordwood.security.access.authorizer import Authorizer, PrincipalAccess
from cordwood.security.principal import ANONYMOUS
from cordwood.security.security_file import SecurityFile
from cordwood.security.security_state import AclRule, SecurityState
from cordwood.security.setup.local_security import allow, deny
from cordwood.storage.files import RealFileSystem

RULES: Final = 10_000
CACHED_US: Final = 2.0
COLD_US: Final = 50.0
ACCESS_RATIO: Final = 0.95  # compared with a server without an authorizer

_OPEN: Final = "Cordwood, no authorizer"
_BATCHES: Final = (4 * KIB, 64 * KIB)  # small ones, because a request is decided once
_NAMES: Final = 2_000  # fewer than an access caches, so that each is cold once
_HOST: Final = "127.0.0.1"


def access_rules(count: int = RULES) -> frozenset[AclRule]:
    """Rules of many users, and those of the clients of this suite."""
    ours = (
        *allow(ANONYMOUS.name, topic="bench-*"),
        *allow(ANONYMOUS.name, "create", "describe"),
        *deny(ANONYMOUS.name, "write", topic="bench-secret-*"),
    )
    kinds: tuple[Callable[[int], tuple[AclRule, ...]], ...] = (
        lambda n: allow(f"user-{n % 500}", "read", topic=f"orders-{n}"),
        lambda n: allow(f"user-{n % 500}", "write", topic=f"team-{n}-*"),
        lambda n: deny("*", "delete", topic=f"bench-{n}-kept"),
        lambda n: allow(ANONYMOUS.name, "read", topic=f"bench-shared-{n}-*"),
    )
    others = (rule for n in range(count - len(ours)) for rule in kinds[n % len(kinds)](n))
    return frozenset((*ours, *others))


# --- one decision -----------------------------------------------------------------------------


def decision_rows(context: Context) -> list[Row]:
    authorizer = Authorizer()
    authorizer.use(SecurityState(rules=access_rules()))
    access = authorizer.access_of(ANONYMOUS, _HOST)
    rounds = context.pick(50, 5)
    row = partial(measure_row, runs=context.runs, durability="-", unit="µs", is_lower_better=True)
    return [
        row(
            f"one decision of {RULES:,} rules, cached",
            partial(cached_us, access, rounds),
            target=Target(bound=CACHED_US),
            note=f"Access.allows with {_NAMES:,} names, mean",
        ),
        row(
            f"one decision of {RULES:,} rules, not cached",
            partial(cold_us, authorizer, rounds),
            target=Target(bound=COLD_US),
            note="the same names, each asked for the first time by a new client, mean",
        ),
    ]


def cached_us(access: PrincipalAccess, rounds: int) -> float:
    names = _names()
    _decide(access, names)
    return sum(_decide(access, names) for _ in range(rounds)) / rounds


def cold_us(authorizer: Authorizer, rounds: int) -> float:
    """Each round has a client of its own, which has no decisions yet."""
    names = _names()
    taken = 0.0
    for number in range(rounds):
        access = authorizer.access_of(ANONYMOUS, f"10.0.{number // 256}.{number % 256}")
        taken += _decide(access, names)
    return taken / rounds


def _names() -> list[str]:
    return [f"bench-shared-{number}-topic" for number in range(_NAMES)]


def _decide(access: PrincipalAccess, names: list[str]) -> float:
    """µs for each name."""
    allows, write, topic = access.allows, AclOperation.WRITE, AclResource.TOPIC
    started = time.perf_counter()
    for name in names:
        allows(write, topic, name)
    return (time.perf_counter() - started) / len(names) * 1e6


# --- a server with many rules -----------------------------------------------------------------


def access_produce_rows(context: Context, stage: Stage, value_size: int) -> list[Row]:
    stage.set_up(context)
    directory, prefix = context.directory, stage.command_prefix
    secured = CordwoodServer(
        fresh_path(directory, "secured"),
        command_prefix=prefix,
        settings={"authorizer.class.name": "standard"},
    )
    write_rules(secured.data_directory)
    opened = CordwoodServer(fresh_path(directory, "open"), command_prefix=prefix, name=_OPEN)
    title = f"produce {size_name(value_size)}, wire, {RULES:,} access rules"
    with running(secured), running(opened):
        return own_produce_rows(
            context, (secured, opened), title, value_size, _BATCHES, ratio=ACCESS_RATIO
        )


def write_rules(data_directory: Path) -> None:
    """The rules of a server that was not started yet."""
    data_directory.mkdir(parents=True)
    file = SecurityFile(RealFileSystem(), [str(data_directory)])
    file.change(lambda _: SecurityState(rules=access_rules()))


def own_produce_rows(
    context: Context,
    servers: tuple[BrokerServer, BrokerServer],
    title: str,
    value_size: int,
    batches: tuple[int, ...],
    *,
    ratio: float,
) -> list[Row]:
    """Cordwood, and another Cordwood that it is judged by."""
    rows: list[Row] = []
    for batch_bytes in batches:
        mib = (1024, 128) if batch_bytes >= 64 * KIB else (256, 32)
        work = workload(context, value_size, full_mib=mib[0], quick_mib=mib[1])
        load = partial(_produce, work, batch_bytes)
        loads = measure_loads(servers, OS, load, runs=context.runs)
        each = f"{title}, batches of {batch_bytes // KIB} KiB"
        in_bytes = value_size >= KIB
        row = load_row(
            each,
            OS,
            "MB/s" if in_bytes else "records/s",
            loads,
            (lambda load: load.mb_per_s) if in_bytes else (lambda load: load.records_per_s),
            judge=servers[1].label(OS),
            ratio=ratio,
            note=f"one connection, five requests in flight; {work.records:,} records",
        )
        rows += [row, *cpu_rows(each, OS, loads)]
    assert servers[0].label(OS) == CORDWOOD, servers[0].name
    return rows


def _produce(work: Workload, batch_bytes: int, server: BrokerServer) -> Load:
    with new_topic(server, OS) as topic:
        return wire_produce(server, topic, work, batch_bytes=batch_bytes)
