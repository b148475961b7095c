"""The memory of a broker of the cluster: each of the three brokers is a sample."""

import time
from dataclasses import replace
from typing import Final

from bench.broker_servers import OS
from bench.broker_stage import figure_row
from bench.cluster_stage import ClusterStage
from bench.measure import Context, Row, Target
from bench.process_tree import tree_resident_mb

IDLE_MB: Final = 100.0

_SETTLE_S: Final = 2.0


def memory_rows(context: Context, stage: ClusterStage, is_idle: bool) -> list[Row]:
    """No row if the system has no figures."""
    sides = stage.cold_sides(context)
    if not sides:
        return []
    time.sleep(_SETTLE_S)
    figures: dict[str, list[float]] = {}
    for side in sides:
        found = [tree_resident_mb(node.pid) for node in side.nodes]
        figures[side.label(OS)] = [each for each in found if each is not None]
    if not all(figures.values()):
        return []
    when = "when idle" if is_idle else "after load"
    row = figure_row(
        f"memory of a broker {when}",
        "-",
        "MB",
        figures,
        is_lower_better=True,
        note="resident; the three brokers are the samples"
        + ("; after the start" if is_idle else "; after the rows of produce"),
    )
    return [replace(row, target=Target(bound=IDLE_MB)) if is_idle else row]
