"""A real S3 protocol server for the session: moto's, in a process of its own, on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from fakes.reserved_port import reserved_port

START_S = 60.0
KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def _await_answer(process: subprocess.Popen[bytes], port: int) -> str | None:
    """None once the server answers; else why it does not."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return f"it ended with {process.returncode}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5):
                return None
        except urllib.error.HTTPError as error:
            error.close()
            return None
        except OSError:
            time.sleep(0.1)
    return f"no answer within {START_S} s"


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """host:port of the server."""
    pytest.importorskip("moto.server", reason="moto is not installed")
    program = str(Path(__file__).with_name("counting_server.py"))
    with (
        reserved_port() as port,
        subprocess.Popen(
            [sys.executable, program, str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **KEYS},
        ) as process,
    ):
        try:
            why_not = _await_answer(process, port)
            if why_not is not None:
                pytest.skip(f"moto's S3 server cannot be started: {why_not}")
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture
def s3_requests(s3_endpoint: str) -> Callable[[], list[tuple[str, str]]]:
    """The requests since the last call: method, and extension of the key or the last part."""

    def since() -> list[tuple[str, str]]:
        with urllib.request.urlopen(f"http://{s3_endpoint}/_requests", timeout=30) as answer:
            seen = json.loads(answer.read())
        return [(method, path.rpartition(".")[2]) for method, path, _ in seen]

    return since


@pytest.fixture
def s3_url(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a place in a new bucket."""
    import pyarrow.fs as arrow_fs

    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    bucket = f"test-{uuid4().hex}"
    arrow_fs.S3FileSystem(
        endpoint_override=s3_endpoint,
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    ).create_dir(bucket)
    return f"s3://{bucket}/some/where?endpoint_override={s3_endpoint}&scheme=http&region=us-east-1"
