"""The suite of security: its rows, its rules, and the TLS that its clients accept."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

import cordwood
from bench.__main__ import SUITES, _parse
from bench.broker_servers import CordwoodServer
from bench.broker_stage import Stage
from bench.measure import Context
from bench.reconnect_storm import storm_seconds
from bench.security import row_makers
from bench.security_access_rows import RULES, access_rules, write_rules
from bench.security_before_rows import before_rows
from bench.tls_files import TlsDiffersError, TlsFiles, create_tls_files
from cordwood.protocol.acl_codes import AclOperation, AclResource
from cordwood.security.access.authorizer import Authorizer
from cordwood.security.principal import ANONYMOUS
from cordwood.security.security_file import SecurityFile
from cordwood.security.security_state import SecurityState
from cordwood.storage.files import RealFileSystem


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return create_tls_files(tmp_path / "tls")


def test_the_suite_has_rows_for_tls_access_rules_and_an_earlier_version() -> None:
    assert "security" in SUITES
    names = list(row_makers())
    for wanted in ("TLS produce 100 B, wire", "TLS reconnects", "access decisions"):
        assert wanted in names
    assert names[-1] == "before and after 100 B"


def test_rules_let_the_clients_of_the_suite_in_and_are_as_many_as_the_row_says() -> None:
    rules = access_rules()
    authorizer = Authorizer()
    authorizer.use(SecurityState(rules=rules))
    access = authorizer.access_of(ANONYMOUS, "127.0.0.1")

    assert len(rules) == RULES
    for operation in (AclOperation.WRITE, AclOperation.READ, AclOperation.CREATE):
        assert access.allows(operation, AclResource.TOPIC, "bench-12")
    assert not access.allows(AclOperation.WRITE, AclResource.TOPIC, "bench-secret-1")
    assert not access.allows(AclOperation.WRITE, AclResource.TOPIC, "orders-4")


def test_rules_are_written_where_the_server_reads_them(tmp_path: Path) -> None:
    write_rules(tmp_path / "data")

    stored = SecurityFile(RealFileSystem(), [str(tmp_path / "data")])

    assert stored.state.rules == access_rules()


def test_a_key_store_is_for_its_owner_only(files: TlsFiles) -> None:
    assert stat.S_IMODE(files.key_store.stat().st_mode) == 0o600


def test_a_server_with_tls_has_one_listener(files: TlsFiles, tmp_path: Path) -> None:
    server = CordwoodServer(tmp_path / "server", tls=files)

    assert f"listeners=SSL://127.0.0.1:{server.port}" in server._command
    assert server.tls is files.client


def test_an_earlier_version_runs_from_its_own_checkout(tmp_path: Path) -> None:
    server = CordwoodServer(tmp_path / "server", checkout=tmp_path / "before")

    assert server._environment is not None
    assert server._environment["PYTHONPATH"] == str(tmp_path / "before" / "src")
    assert str(tmp_path / "before" / ".venv" / "bin" / "python") in server._command


def test_without_an_earlier_version_there_is_nothing_to_compare(tmp_path: Path) -> None:
    said: list[str] = []
    context = Context(directory=tmp_path, is_quick=True, runs=1, say=said.append)

    assert before_rows(context, Stage(), 100) == []
    assert said == ["skipped: it needs --before DIR"]


def test_an_earlier_version_is_for_one_suite(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(["all", "--before", "."])

    assert "--before needs one suite" in capsys.readouterr().err


def test_another_cipher_than_the_row_compares_is_an_error(files: TlsFiles) -> None:
    ours, theirs = socket.socketpair()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.key_store)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    # The client insists on TLS 1.3; this one accepts the older version that the server offers.
    files.client.context.minimum_version = ssl.TLSVersion.TLSv1_2
    server = threading.Thread(target=lambda: context.wrap_socket(theirs, server_side=True).close())
    server.start()
    try:
        with pytest.raises(TlsDiffersError, match=r"TLSv1\.2"):
            files.client.wrapped(ours)
    finally:
        server.join(30)

    assert ours.fileno() == -1


def test_all_clients_of_a_storm_are_answered(files: TlsFiles) -> None:
    config = {"listeners": "SSL://127.0.0.1:0", **files.server_properties}
    with cordwood.Broker(config=config) as broker:
        port = int(broker.bootstrap_servers.rsplit(":", 1)[1])

        assert storm_seconds(port, files.client, 20) > 0
