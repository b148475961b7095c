"""What a failed command says: what was wrong, in one line, and what to do about it."""

import errno
from typing import Final

from cordwood.errors import (
    BrokerUnreachableError,
    CordwoodError,
    DirectoryLockedError,
    TopicExistsError,
    UnknownTopicError,
)

_ADVICE: Final[tuple[tuple[type[Exception], str], ...]] = (
    (UnknownTopicError, "`cordwood topics list` shows which there are"),
    (TopicExistsError, "choose another name, or `cordwood topics create --if-not-exists`"),
    (BrokerUnreachableError, "is it started (`cordwood serve`), and is the address right?"),
)
_SYSTEM_ADVICE: Final = {
    errno.EACCES: "run as the user who owns it",
    errno.EPERM: "run as the user who owns it",
    errno.ENOSPC: "make room; `cordwood doctor` shows how much there is",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`); `cordwood doctor` shows it",
    errno.EADDRINUSE: "choose another port (--port), or stop who listens there",
}


def error_text(error: CordwoodError | OSError) -> str:
    """One line, with the notes that were added on the way."""
    told = _system_text(error) if isinstance(error, OSError) else str(error)
    notes = list(getattr(error, "__notes__", []))
    if isinstance(error, DirectoryLockedError):
        told = f"{error.path} is in use by {error.owner}: stop it, or ask it by its address"
    advice = _advice(error)
    return "; ".join([told, *notes, *([advice] if advice else [])])


def _system_text(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    where = error.filename if error.filename is not None else ""
    other = f" to {error.filename2}" if error.filename2 is not None else ""
    return f"{where}{other}: {error.strerror}" if where != "" else error.strerror


def _advice(error: Exception) -> str | None:
    if isinstance(error, OSError):
        return _SYSTEM_ADVICE.get(error.errno or 0)
    return next((advice for kind, advice in _ADVICE if isinstance(error, kind)), None)
