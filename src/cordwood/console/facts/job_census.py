"""What jobs of Spark leave in a store: their traces, what they published, what waits."""

import os
import re
from collections.abc import Sequence
from typing import Final

from cordwood.errors import CordwoodError
from cordwood.log.beside.job_traces import JobTrace, read_traces
from cordwood.log.inbox.change_inbox import inbox_directory
from cordwood.log.publishing.publication_ledger import read_publications
from cordwood.storage.files import RealFileSystem
from cordwood.value_class import dataclass

_STAGED: Final = re.compile(r"[0-9a-f]{32}")
_REQUEST: Final = re.compile(r"[0-9a-f]{32}\.(?:request|claimed)")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterFacts:
    """A query or a job that writes batches, each once: the last number that was published."""

    name: str
    number: int
    published_ms: int
    is_transient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """`staged_count` are sets of files that no job has published yet; `problem`: no ledger."""

    traces: tuple[JobTrace, ...]
    writers: tuple[WriterFacts, ...]
    staged_count: int
    request_count: int
    problem: str | None = None


def job_facts(directories: Sequence[str]) -> JobFacts:
    """Reads a few small files; nothing is kept open."""
    fs = RealFileSystem()
    problem: str | None = None
    writers: tuple[WriterFacts, ...] = ()
    try:
        writers = tuple(
            WriterFacts(
                name=name,
                number=last.number,
                published_ms=last.at_ms,
                is_transient=last.is_transient,
            )
            for name, last in read_publications(fs, directories).applications.items()
        )
    except (CordwoodError, OSError) as error:
        problem = str(error)
    names = _inbox_names(directories[0])
    return JobFacts(
        traces=tuple(read_traces(fs, directories[0])),
        writers=writers,
        staged_count=sum(_STAGED.fullmatch(name) is not None for name in names),
        request_count=sum(_REQUEST.fullmatch(name) is not None for name in names),
        problem=problem,
    )


def _inbox_names(directory: str) -> list[str]:
    try:
        return os.listdir(inbox_directory(directory))
    except OSError:
        return []
