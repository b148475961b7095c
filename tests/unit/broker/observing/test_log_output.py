"""What a broker process reports, line by line."""

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest

from cordwood.broker.observing.log_output import LogOutputConfig, configure_logging
from cordwood.errors import ConfigError


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("cordwood")
    handlers, level, our_level = list(root.handlers), root.level, ours.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)


def start(**config: str) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(LogOutputConfig(**config), stream)
    [handler] = logging.getLogger().handlers
    mine = threading.get_ident()
    handler.addFilter(lambda record: record.thread == mine)  # others of the process log too
    stream.seek(0)
    stream.truncate()
    return stream


def test_a_line_of_text_has_time_level_logger_and_message() -> None:
    stream = start()

    logging.getLogger("cordwood.broker").info("listening on %s", "here")

    line = stream.getvalue()
    assert line.endswith(" INFO    cordwood.broker: listening on here\n")
    assert line[10] == "T"
    assert line[23] == "Z"


def test_a_message_cannot_forge_a_line() -> None:
    stream = start()

    logging.getLogger("cordwood").warning("from %s", "client\n2026 INFO cordwood: all is well")

    assert stream.getvalue().count("\n") == 1
    assert "client\\n2026" in stream.getvalue()


HOSTILE = "\x1b[2J\x9b31m\u202e\u2028\x00\x7f\ud800"


def test_text_of_a_client_cannot_control_a_terminal() -> None:
    stream = start()

    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("cordwood").exception("from %s", HOSTILE)

    text = stream.getvalue()
    assert not any(character in text for character in HOSTILE if not character.isprintable())
    assert "from \\x1b[2J\\x9b31m\\u202e\\u2028\\x00\\x7f\\ud800\n" in text
    assert "Traceback" in text.splitlines()[1]


def test_json_with_text_of_a_client_is_plain_and_means_the_same() -> None:
    stream = start(logger_format="json")

    logging.getLogger("cordwood").warning("from %s", HOSTILE)

    line = stream.getvalue().rstrip("\n")
    assert line.isprintable()
    assert json.loads(line)["message"] == f"from {HOSTILE}"


def test_json_is_one_object_per_line_with_the_facts_as_fields() -> None:
    stream = start(logger_format="json")

    logging.getLogger("cordwood").info("started", extra={"facts": {"port": 9092, "level": "mine"}})
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("cordwood").exception("failed")

    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["message"] == "started"
    assert first["port"] == 9092
    assert first["level"] == "info"
    assert first["logger"] == "cordwood"
    assert "ValueError: why" in second["exception"]


def test_only_what_matters_enough_is_reported() -> None:
    stream = start(logger_level="warning")

    logging.getLogger("cordwood").info("chatter")
    logging.getLogger("cordwood").warning("trouble")

    assert "chatter" not in stream.getvalue()
    assert "trouble" in stream.getvalue()


def test_debugging_the_broker_leaves_other_libraries_quiet() -> None:
    stream = start(logger_level="debug")

    logging.getLogger("cordwood.broker").debug("ours")
    logging.getLogger("urllib3").debug("theirs")

    assert "ours" in stream.getvalue()
    assert "theirs" not in stream.getvalue()


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"logger\.level = loud: must be one of debug"):
        LogOutputConfig(logger_level="loud")
