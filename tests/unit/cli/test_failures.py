"""What a failed command says, in one line."""

import errno
import os

import pytest

from cordwood.cli.failures import error_text
from cordwood.errors import (
    BrokerUnreachableError,
    CordwoodError,
    DirectoryLockedError,
    LogClosedError,
    TopicExistsError,
    UnknownTopicError,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            UnknownTopicError("ordres"),
            "no topic named 'ordres'; run `cordwood topics list` to see the topics",
        ),
        (
            TopicExistsError("orders"),
            "topic 'orders' already exists; "
            "choose another name, or use `cordwood topics create --if-not-exists`",
        ),
        (
            BrokerUnreachableError("localhost:1", "Connection refused"),
            "no broker answers at localhost:1: Connection refused; "
            "check the address, and that the broker runs (`cordwood serve`)",
        ),
        (
            DirectoryLockedError("data", "pid 7"),
            "data is in use by pid 7; stop that process, or connect to it with --at HOST:PORT",
        ),
        (
            PermissionError(errno.EACCES, os.strerror(errno.EACCES), "data/.lock"),
            "data/.lock: Permission denied; run as the user who owns it",
        ),
        (
            OSError(errno.EXDEV, os.strerror(errno.EXDEV), "a", None, "b"),
            "a to b: Invalid cross-device link",
        ),
        (OSError(errno.EIO, os.strerror(errno.EIO)), "Input/output error"),
        (OSError("just so"), "just so"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_it_says_what_was_wrong_and_what_to_do(error: CordwoodError | OSError, text: str) -> None:
    assert error_text(error) == text


def test_notes_stand_between_the_two() -> None:
    error = UnknownTopicError("x")
    error.add_note("while appending line 3")

    assert "'x'; while appending line 3; run `cordwood" in error_text(error)


def test_an_error_that_says_it_all_is_left_as_it_is() -> None:
    error = LogClosedError("orders-0")

    assert error_text(error) == str(error)
