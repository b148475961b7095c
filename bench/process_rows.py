"""The memory of a process that uses the library, and the time until a new one can use it."""

import shutil
from dataclasses import dataclass

from bench.child import measure_memory, seconds_in_new_process
from bench.measure import Context, Row, Target, measure_row, samples
from bench.workload import fresh_path
from cordwood.quantities import GIB


def memory_rows(context: Context) -> list[Row]:
    total_bytes = context.pick(8, 1) * GIB
    path = fresh_path(context.directory, "memory")
    used = measure_memory(path, total_bytes)
    shutil.rmtree(path)
    return [
        Row(
            title=f"peak memory, append and scan of {total_bytes // GIB} GiB",
            durability="os",
            unit="MB",
            cordwood=samples("Cordwood", [used.peak_mb]),
            target=Target(bound=400.0),
            is_lower_better=True,
            note=(
                f"one run; pyarrow included; appended at {used.append_gb_per_s:.2f} GB/s, "
                f"scanned at {used.scan_gb_per_s:.2f} GB/s"
            ),
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """What a new process does first, and what it does before and after the clock runs."""

    does: str
    before: str = ""
    after: str = ""

    def seconds(self) -> float:
        return seconds_in_new_process(self.does, before=self.before, after=self.after)


_DIRECTORY = "import shutil, tempfile; directory = tempfile.mkdtemp()"
_REMOVAL = "shutil.rmtree(directory)"

_IMPORT_SQLITE = _Start(does="import sqlite3")
_OPEN_STORE = _Start(
    before=_DIRECTORY,
    does="import cordwood; store = cordwood.open(directory)",
    after=f"store.close(); {_REMOVAL}",
)
_OPEN_SQLITE = _Start(
    before=_DIRECTORY,
    does=(
        "import sqlite3; database = sqlite3.connect(directory + '/db')\n"
        "database.execute('create table t(v)')"
    ),
    after=f"database.close(); {_REMOVAL}",
)
_ASK_A_BROKER = _Start(  # for the versions of its APIs
    before=_DIRECTORY,
    does=(
        "import cordwood, socket; broker = cordwood.Broker(directory).start()\n"
        "client = socket.create_connection((broker.host, broker.port))\n"
        "client.sendall(bytes.fromhex('0000000a 0012 0000 00000001 ffff'))\n"
        "assert client.recv(4)"
    ),
    after=f"client.close(); broker.stop(); {_REMOVAL}",
)


def import_rows(context: Context) -> list[Row]:
    def row(title: str, start: _Start, peers: dict[str, _Start], bound: float | None) -> Row:
        return measure_row(
            title,
            start.seconds,
            runs=max(context.runs, 5),
            durability="-",
            unit="s",
            peers={name: peer.seconds for name, peer in peers.items()},
            target=None if bound is None else Target(bound=bound),
            is_lower_better=True,
        )

    imported = {"import sqlite3": _IMPORT_SQLITE}
    return [
        row("import cordwood", _Start(does="import cordwood"), imported, 0.2),
        row(
            "import cordwood, and all that cordwood.open needs",
            _Start(does="import cordwood; cordwood.open"),
            imported,
            None,
        ),
        row("open a new store, imports included", _OPEN_STORE, {"sqlite3": _OPEN_SQLITE}, 0.12),
        row("cordwood.Broker() to its first answer, imports included", _ASK_A_BROKER, {}, 0.25),
    ]
