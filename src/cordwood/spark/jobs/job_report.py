"""What a job did, or would do: rows for people and programs, and whether all is well."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The outcome of one run.

    rows       one for each partition, segment or hour, as the job says
    totals     figures for the whole
    problems   what is not as it should be, in sentences; empty when all is well
    """

    job: str
    rows: tuple[Mapping[str, Any], ...] = ()
    totals: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    is_dry_run: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The names in the rows, in the order of the first."""
        return tuple(self.rows[0]) if self.rows else ()
