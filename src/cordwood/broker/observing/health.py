"""Whether a broker is alive, and whether it can serve.

    alive   its loops turn. If not, only a restart helps.
    ready   it is alive, its store is open, groups are loaded, every data directory is usable, and
            the controllers of its cluster let it lead. If not, clients should be sent elsewhere.

A fault that does not affect every client is a warning: a partition that takes no appends, a disk
that is short of space while reading continues.
"""

from typing import Final

from cordwood.broker.observing.observed_broker import ObservedBroker
from cordwood.errors import LogClosedError
from cordwood.log.topics.log_directory import DirectoryStatus
from cordwood.value_class import dataclass

_TURN_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class HealthReport:
    """With problems the answer is no; warnings need an operator's attention."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class HealthChecks:
    """Checks the threads of a broker. Any thread may call it."""

    def __init__(self, broker: ObservedBroker, *, turn_timeout_s: float = _TURN_TIMEOUT_S) -> None:
        self._broker = broker
        self._turn_timeout_s = turn_timeout_s

    def liveness(self) -> HealthReport:
        if self._broker.is_responsive(self._turn_timeout_s):
            return HealthReport()
        return HealthReport(
            (f"clients are not served: a loop has not turned for {self._turn_timeout_s} s",)
        )

    def readiness(self) -> HealthReport:
        problems = [*self.liveness().problems]
        try:
            self._broker.store.topics()
        except LogClosedError as error:
            return HealthReport((*problems, str(error)))
        if not self._broker.is_coordinator_loaded():
            problems.append("groups are still being loaded")
        cluster = None if self._broker.cluster is None else self._broker.cluster()
        if cluster is not None and cluster.fencing is not None:
            problems.append(cluster.fencing)
        directories = self._broker.store.directories.status()
        problems += [
            f"{status.path} cannot be used: {status.error}"
            for status in directories
            if status.error is not None
        ]
        warnings = [warning for status in directories for warning in _warnings(status)]
        warnings += [
            f"{listener} lets everybody in: its clients do not authenticate"
            for listener in self._broker.insecure_listeners
        ]
        if cluster is not None and cluster.stopped:
            warnings.append(f"{cluster.stopped} replicas stopped and need help; the log says why")
        return HealthReport(tuple(problems), tuple(warnings))


def _warnings(status: DirectoryStatus) -> list[str]:
    warnings = []
    if status.is_short_of_room:
        warnings.append(f"{status.path} is short of space: appends are refused, and followers wait")
    if status.offline:
        warnings.append(f"{status.path}: {_named(status.offline)} cannot be read")
    if status.failed:
        warnings.append(f"{status.path}: {_named(status.failed)} refuse appends after a disk error")
    return warnings


def _named(partitions: tuple[tuple[str, int], ...]) -> str:
    shown = ", ".join(f"{topic}-{number}" for topic, number in partitions[:5])
    more = len(partitions) - 5
    return f"{shown} and {more} more" if more > 0 else shown
