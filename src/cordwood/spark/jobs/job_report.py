"""What a job did, or would do: rows for people and programs, and problems."""

from collections.abc import Mapping
from typing import Any

from cordwood.value_class import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The outcome of one run.

    rows       one for each partition, segment or hour, depending on the job
    totals     figures of the whole run
    problems   sentences; empty if there are none
    """

    job: str
    rows: tuple[Mapping[str, Any], ...] = ()
    totals: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    is_dry_run: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The column names, in the order of the first row."""
        return tuple(self.rows[0]) if self.rows else ()
