"""Running commands in this process, on each kind of target."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import cordwood
from cordwood.cli.app import main


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[Any]:
        """Standard output as JSON, an object per line."""
        return [json.loads(line) for line in self.lines]


class CommandLine:
    """Runs ``cordwood ...``; `at` is added to each command where it is set."""

    def __init__(
        self,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        at: str | None = None,
    ) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.at = at

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ran:
        """The outcome, whatever it is."""
        target = [] if self.at is None else ["--at", self.at]
        stream = io.TextIOWrapper(io.BytesIO(stdin))
        self._monkeypatch.setattr(sys, "stdin", stream)
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*arguments, *target])
        captured = self._capsys.readouterr()
        code = ended.value.code
        number = code if isinstance(code, int) else 0 if code is None else 1
        return Ran(code=number, out=captured.out, err=captured.err)

    def ok(self, *arguments: str, stdin: bytes = b"") -> Ran:
        """The outcome of a command that must succeed."""
        ran = self(*arguments, stdin=stdin)
        assert ran.code == 0, ran
        return ran


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTarget:
    """What commands work on in a test.

    kind    directory, owned directory, broker, or directory of a broker
    store   gives the store for the test to look into and to fill; it is closed again where
            nobody is to hold it
    """

    kind: str
    at: str
    open_store: Callable[[], "StoreLease"]


class StoreLease:
    """A store for the time of a `with`."""

    def __init__(self, store: cordwood.Store, *, closes: bool) -> None:
        self._store = store
        self._closes = closes

    def __enter__(self) -> cordwood.Store:
        return self._store

    def __exit__(self, *_: object) -> None:
        if self._closes:
            self._store.close()
