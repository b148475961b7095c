"""How a command fails: exit codes, wrong command lines, and the one line that reports an error.

exit code   meaning
0           success
1           failure: the message says why
2           the command line or a setting is wrong
130, 143    interrupted, or ended by SIGTERM
"""

import errno
from typing import Final

from cordwood.errors import (
    BrokerUnreachableError,
    ConfigError,
    CordwoodError,
    CorruptSegmentError,
    DirectoryLockedError,
    TopicExistsError,
    UnknownTopicError,
)

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

_ADVICE: Final[tuple[tuple[type[Exception], str], ...]] = (
    (UnknownTopicError, "run `cordwood topics list` to see the topics"),
    (TopicExistsError, "choose another name, or use `cordwood topics create --if-not-exists`"),
    (
        CorruptSegmentError,
        "`cordwood verify` lists all damage; `cordwood consume --skip-damaged` prints the rest",
    ),
    (BrokerUnreachableError, "check the address, and that the broker runs (`cordwood serve`)"),
)
_SYSTEM_ADVICE: Final = {
    errno.EACCES: "run as the user who owns it",
    errno.EPERM: "run as the user who owns it",
    errno.ENOSPC: "free some disk space; `cordwood doctor` shows how much is left",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`); `cordwood doctor` shows it",
    errno.EADDRINUSE: "choose another port (--port), or stop the process that listens there",
}


class UsageError(ConfigError):
    """An option is missing, or two options exclude each other. Ends with exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__("", "", message)
        self.args = (message,)


def exit_code(error: CordwoodError | OSError) -> int:
    """The exit code of a command that failed with `error`."""
    return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILURE


def error_text(error: CordwoodError | OSError) -> str:
    """One line: the error, the notes added to it, and advice."""
    text = _system_text(error) if isinstance(error, OSError) else str(error)
    notes = list(getattr(error, "__notes__", []))
    if isinstance(error, DirectoryLockedError):
        text = (
            f"{error.path} is in use by {error.owner}; stop that process, or connect to it with "
            "--at HOST:PORT"
        )
    advice = _advice(error)
    return "; ".join([text, *notes, *([advice] if advice else [])])


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
