"""Keeps the directories that were exchanged for others, for readers that are listing them.

    lake/orders/              the table
    lake/.orders.replaced/
        00000000000000000001-1767225600000-<id>/   a run that was replaced, and when

A reader that has opened a directory lists it as it was, as long as its files stay. If they were
removed at once, the listing would end early, without an error. So they stay for `KEPT_S`, and of
each run at most `KEPT_MAX`. The next commit or upkeep removes older ones.

They are beside the table because not every tool skips names in it that begin with `_` or `.`:
DuckDB and Polars do not. Nothing here is needed again: whatever a crash leaves may be removed.
"""

import contextlib
import logging
import os
import re
import shutil
import time
import uuid
from typing import Final

logger = logging.getLogger(__name__)

# A directory of at most some hundred names is listed with one or two system calls. A minute is
# for a reader that a busy machine or a debugger holds between opening a directory and listing it.
KEPT_S: Final = 60
KEPT_MAX: Final = 16  # of one run, if commits come quickly; each is up to 128 links
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{1,15})-[0-9a-f]{32}")


class ReplacedRuns:
    """The replaced runs of one table. Several processes may use it. For one thread."""

    def __init__(self, table: str) -> None:
        self._home = os.path.join(os.path.dirname(table), f".{os.path.basename(table)}.replaced")
        self._was_refused = False

    def keep(self, directory: str, run: int) -> None:
        """Take a directory that no name of the table leads to any more.

        It stays where it is if it cannot be moved, as when the table is a mounted file system.
        """
        name = f"{run:020d}-{time.time_ns() // 1_000_000}-{uuid.uuid4().hex}"
        try:
            os.makedirs(self._home, exist_ok=True)
            os.rename(directory, os.path.join(self._home, name))
        except OSError as error:
            if not self._was_refused:
                logger.warning(
                    "%s cannot keep replaced directories: %s. "
                    "Queries that list the table during a commit may miss rows",
                    self._home,
                    error,
                )
            self._was_refused = True

    def remove_old(self) -> None:
        """Remove those that nobody can still be listing."""
        try:
            names = os.listdir(self._home)
        except OSError:
            return
        for name in plan_removal(names, now_ms=time.time_ns() // 1_000_000):
            shutil.rmtree(os.path.join(self._home, name), ignore_errors=True)
        with contextlib.suppress(OSError):  # there are others
            os.rmdir(self._home)


def plan_removal(names: list[str], *, now_ms: int) -> list[str]:
    """The names of directories that are old, or too many of one run. Other names are not ours."""
    of_run: dict[int, list[tuple[int, str]]] = {}
    for name in names:
        if found := _NAME.fullmatch(name):
            of_run.setdefault(int(found[1]), []).append((int(found[2]), name))
    removed: list[str] = []
    for kept in of_run.values():
        kept.sort(reverse=True)
        for place, (replaced_ms, name) in enumerate(kept):
            # A time in the future is one before the clock was set back.
            if place >= KEPT_MAX or abs(now_ms - replaced_ms) >= KEPT_S * 1000:
                removed.append(name)
    return removed
