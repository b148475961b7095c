"""A broker of a cluster with a bug, by name. The checker must find each of them.

    python -m crash.exactly_once.planted_member NAME serve --config FILE

forgotten decision  a coordinator that loads a prepared transaction does not complete it
markers only here   partitions that other brokers lead get no markers
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from cordwood.broker.cluster.transactions.marker_sender import MarkerSender
from cordwood.broker.cluster.transactions.transaction_shards import TransactionShards
from cordwood.cli.app import main


def _forgotten_decision() -> None:
    install: Any = TransactionShards._install

    def forgetful(self: Any, number: int, epoch: int, loaded: Any) -> None:
        install(self, number, epoch, [each for each in loaded if not each.is_prepared])

    TransactionShards._install = forgetful  # type: ignore[method-assign]


def _markers_only_here() -> None:
    def settle(self: Any, node_id: int) -> None:
        tasks = self._waiting.pop(node_id, [])
        here = [task for task in tasks if node_id == self._node_id]
        self._settle([task for task in tasks if task not in here])
        if here:
            self._waiting[node_id] = here
            flush(self, node_id)

    flush: Any = MarkerSender._flush
    MarkerSender._flush = settle  # type: ignore[method-assign]


PLANTS: Final[dict[str, Callable[[], None]]] = {
    "forgotten decision": _forgotten_decision,
    "markers only here": _markers_only_here,
}


if __name__ == "__main__":
    PLANTS[sys.argv.pop(1)]()
    main()
