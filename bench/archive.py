"""Archives in an object store: one record, a scan, archiving; requests, time and processor time.

The stores are processes of their own, on a core of their own (`object_server`). One is as quick as
loopback allows, so that the library is what is measured. The other waits before each answer and
limits the rate of each connection, as a store across a network does. Caches are empty before each
sample.
"""

from functools import partial

from bench.archive_rows import archiving_rows, one_record_rows, scan_rows, small_segment_rows
from bench.archive_stage import FAR, NEAR, ArchiveStage
from bench.measure import RowMaker


def row_makers() -> dict[str, RowMaker]:
    """Each makes one row, or several from one measurement."""
    stage = ArchiveStage()
    return {
        "one record": partial(one_record_rows, stage=stage),
        "scan near": partial(scan_rows, stage=stage, kind=NEAR),
        "scan far": partial(scan_rows, stage=stage, kind=FAR),
        "small segment": partial(small_segment_rows, stage=stage),
        "archiving": partial(archiving_rows, stage=stage),
    }
