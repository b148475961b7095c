"""Workers use the driver's Python in local mode, unless another one was chosen."""

import logging
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from cordwood.spark.source_lookup import make_active, use_this_python


@dataclass
class Context:
    """As much of a SparkContext as is asked for."""

    master: str
    conf: dict[str, str] = field(default_factory=dict)
    pythonExec: str = "python3"  # noqa: N815  Spark's name

    def getConf(self) -> dict[str, str]:  # noqa: N802  Spark's name
        return self.conf


class Session:
    """As much of a SparkSession as is asked for."""

    def __init__(self, context: Context) -> None:
        self._sc = context


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_in_local_mode_workers_use_this_python(master: str) -> None:
    context = Context(master)
    session: Any = Session(context)

    assert use_this_python(session)
    assert context.pythonExec == sys.executable
    assert not use_this_python(session)  # nothing left to do


def test_a_python_that_was_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    by_setting = Context("local[2]", {"spark.pyspark.python": "/opt/python"})
    by_variable = Context("local[2]")
    sessions: list[Any] = [Session(by_setting), Session(by_variable)]

    assert not use_this_python(sessions[0])
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    assert not use_this_python(sessions[1])

    assert (by_setting.pythonExec, by_variable.pythonExec) == ("python3", "python3")


def test_on_a_cluster_it_is_said_what_to_set(caplog: pytest.LogCaptureFixture) -> None:
    context = Context("spark://master:7077")
    session: Any = Session(context)

    with caplog.at_level(logging.WARNING):
        assert not use_this_python(session)

    assert context.pythonExec == "python3"
    assert "set PYSPARK_PYTHON" in caplog.text


def test_a_remote_session_is_left_alone() -> None:
    session: Any = object()

    make_active(session)

    assert not use_this_python(session)
