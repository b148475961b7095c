"""The memory of a process that uses the library, and the time to import it."""

import shutil

from bench.child import import_seconds, measure_memory
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


def import_rows(context: Context) -> list[Row]:
    runs = max(context.runs, 5)

    def row(title: str, statement: str, target: Target | None) -> Row:
        return measure_row(
            title,
            lambda: import_seconds(statement),
            runs=runs,
            durability="-",
            unit="s",
            peers={"import sqlite3": lambda: import_seconds("import sqlite3")},
            target=target,
            is_lower_better=True,
        )

    return [
        row("import cordwood", "import cordwood", Target(bound=0.2)),
        row(
            "import cordwood, and all that cordwood.open needs",
            "import cordwood; cordwood.open",
            None,
        ),
    ]
