"""What `cordwood doctor` finds out: one thing looked at, how it is, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """OK: as it should be. NOTE: worth knowing. WARNING: works, less well. PROBLEM: mend it."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`advice` says what to do, and is empty where nothing is."""

    area: str
    name: str
    value: str
    verdict: Verdict = Verdict.OK
    advice: str = ""
