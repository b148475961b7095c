"""The library in one process: appending, reading, opening, memory.

Durability "os": an acknowledged record survives the death of the process. "disk": it also survives
a power cut. Rows that read do so from the page cache.
"""

from bench.append_rows import append_many_rows, append_rows, append_to_disk_rows
from bench.measure import RowMaker
from bench.opening_rows import open_rows
from bench.process_rows import import_rows, memory_rows
from bench.read_rows import (
    random_read_rows,
    random_sole_rows,
    read_rows,
    scan_large_rows,
    scan_small_rows,
)


def row_makers() -> dict[str, RowMaker]:
    """Each makes one row, or several from one measurement."""
    return {
        "append_many": append_many_rows,
        "append": append_rows,
        "append to disk": append_to_disk_rows,
        "scan 1 KiB": scan_large_rows,
        "scan 16 B": scan_small_rows,
        "read": read_rows,
        "random read": random_read_rows,
        "random sole": random_sole_rows,
        "open": open_rows,
        "memory": memory_rows,
        "import": import_rows,
    }
