"""Bugs to plant into a broker, by name. The checker must find each of them.

unsynced decision   the end of a transaction is answered before it is on the disk
unsynced markers    a transaction is complete before its markers are on the disk
lost offsets        offsets that were committed in a transaction are forgotten at its end
no reconciliation   what is open in logs at a start stays as it is
early answer        the end is answered before it is written at all
visible aborts      aborted transactions are not listed for readers
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

_LATE_S: Final = 0.05


def _set(owner: object, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name}: the bug would not be there"
    setattr(owner, name, value)


def plant(name: str) -> None:
    if name:
        PLANTS[name]()


def _unsynced_decision() -> None:
    """The sync that the journal asks for does not happen; the housekeeping syncs much later.

    Markers that are on the disk would save the transaction. They come late here, so that a kill
    finds the time between an answer and its markers.
    """
    from cordwood.log.transactions.marker_writer import MarkerWriter
    from cordwood.log.transactions.transaction_journal import TransactionJournal
    from cordwood.log.transactions.transaction_topic import TransactionTopic

    append, append_markers = TransactionJournal.append, MarkerWriter.append

    def without_sync(self: TransactionJournal, entries: Any) -> Any:
        written = append(self, entries)
        written.ends.clear()
        return written

    def late(self: MarkerWriter, markers: Any, *, wait: bool = True) -> Any:
        wanted = list(markers)
        if wanted:
            time.sleep(_LATE_S)
        return append_markers(self, wanted, wait=wait)

    _set(TransactionJournal, "append", without_sync)
    _set(MarkerWriter, "append", late)
    _set(TransactionTopic, "request_sync", lambda self: None)


def _unsynced_markers() -> None:
    """They are synced a moment later, so that the transaction is not merely stuck."""
    from cordwood.log.transactions.marker_writer import MarkerWriter

    append = MarkerWriter.append

    def later(self: MarkerWriter, markers: Any, *, wait: bool = True) -> Any:
        written = append(self, markers, wait=wait)
        for log, end in written.ends.items():
            timer = threading.Timer(_LATE_S, log.promises.await_kept, (end,))
            timer.daemon = True
            timer.start()
        written.ends.clear()
        return written

    _set(MarkerWriter, "append", later)


def _lost_offsets() -> None:
    from cordwood.log.topics.offsets_table import OffsetsTable

    def finish(self: OffsetsTable, marker: Any) -> None:
        self._pending.pop(marker.producer_id, None)

    _set(OffsetsTable, "_finish", finish)


def _no_reconciliation() -> None:
    from cordwood.log.transactions import transaction_recovery

    _set(transaction_recovery, "plan_reconciliation", lambda known, found: [])


def _early_answer() -> None:
    """The caller hears of it first; then it is written."""
    from cordwood.log.transactions.transaction_journal import TransactionJournal

    append = TransactionJournal.append

    def answer_first(self: TransactionJournal, entries: list[Any]) -> Any:
        for entry in entries:
            if entry.written is not None:
                entry.written(None)
        if entries:
            time.sleep(_LATE_S)
        return append(self, [replace(entry, written=None) for entry in entries])

    _set(TransactionJournal, "append", answer_first)


def _visible_aborts() -> None:
    from cordwood.broker.records import fetch_plan

    _set(fetch_plan, "_aborted", lambda log, start, records, stable: [])


PLANTS: Final[dict[str, Callable[[], None]]] = {
    "unsynced decision": _unsynced_decision,
    "unsynced markers": _unsynced_markers,
    "lost offsets": _lost_offsets,
    "no reconciliation": _no_reconciliation,
    "early answer": _early_answer,
    "visible aborts": _visible_aborts,
}
