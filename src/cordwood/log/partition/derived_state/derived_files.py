"""Derived files of a log: what happens if one cannot be written.

Indexes, snapshots and checkpoints can be made again from the records. So a failure, such as a
full disk or a missing descriptor, delays nobody and fails nothing: the file is tried again with
the next sync or checkpoint.
"""

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)


class DerivedFiles:
    """Writes derived files of one log and remembers which could not be written.

    The first failure of each kind is logged, and then its end. One thread at a time calls it.
    """

    def __init__(self, name: str, report: Callable[[OSError], None]) -> None:
        """`report` is told of every failure: the disk itself may be failing."""
        self._name = name
        self._report = report
        self._failing: set[str] = set()

    def write(self, what: str, write: Callable[[], None]) -> bool:
        """Call `write`; return whether it succeeded. `what` names the files in the log line."""
        try:
            write()
        except OSError as error:
            if what not in self._failing:
                self._failing.add(what)
                logger.warning(
                    "%s: %s cannot be written and will be tried again: %s", self._name, what, error
                )
            self._report(error)
            return False
        if what in self._failing:
            self._failing.discard(what)
            logger.info("%s: %s can be written again", self._name, what)
        return True
