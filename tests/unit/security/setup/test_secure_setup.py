"""What `serve --secure` makes: complete, safe to repeat, and finished after an interruption."""

import datetime
import os
import stat
from pathlib import Path

import pytest

from cordwood.errors import ConfigError
from cordwood.format.small_files.meta_properties import parse_properties
from cordwood.security.certificates.certificate_authority import (
    CertificateAuthority,
    CertificateFacts,
    certificate_facts,
)
from cordwood.security.clients.client_properties import parse_client_properties
from cordwood.security.secret import Secret
from cordwood.security.setup.secure_setup import SecureFolder, SecureSetup
from cordwood.storage.files import RealFileSystem

_NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_HOSTS = ["localhost", "127.0.0.1"]


def _prepare(
    data: Path, *, days: float = 0, hosts: list[str] = _HOSTS, finishes: bool = True
) -> SecureSetup:
    folder = SecureFolder(RealFileSystem(), str(data))
    setup = folder.prepare(
        hosts=hosts,
        address=("log.example", 9093),
        settings={"listeners": "SASL_SSL://127.0.0.1:9093"},
        now=_NOW + datetime.timedelta(days=days),
    )
    if finishes:
        folder.finish(setup)
    return setup


def _contents(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (data / "security").iterdir()}


def _server_facts(data: Path) -> CertificateFacts:
    pem = (data / "security" / "server.pem").read_bytes()
    return certificate_facts(pem[pem.index(b"-----BEGIN CERT") :])


def test_everything_is_made_and_private(tmp_path: Path) -> None:
    setup = _prepare(tmp_path)

    made = _contents(tmp_path)
    assert set(made) == {
        "ca.key", "ca.pem", "server.pem", "admin.password", "admin.properties", "kcat.conf",
        "README.txt", "broker.properties",
    }  # fmt: skip
    assert setup.is_new
    for name in set(made) - {"ca.pem", "README.txt"}:
        mode = stat.S_IMODE((tmp_path / "security" / name).stat().st_mode)
        assert mode == 0o600, name
    assert stat.S_IMODE((tmp_path / "security").stat().st_mode) == 0o700
    assert len(setup.password.reveal()) >= 32
    assert setup.password.reveal().encode() not in made["README.txt"] + made["broker.properties"]
    assert setup.password.reveal() not in repr(setup)


def test_the_clients_file_is_complete_in_itself(tmp_path: Path) -> None:
    setup = _prepare(tmp_path)

    found = parse_client_properties(
        parse_properties((tmp_path / "security" / "admin.properties").read_text())
    )

    assert found.bootstrap_servers == "log.example:9093"
    assert found.security.user == "admin"
    assert found.security.password == setup.password
    assert found.security.trust is not None
    assert found.security.trust.pem == (tmp_path / "security" / "ca.pem").read_text().strip()


def test_repeating_it_changes_nothing(tmp_path: Path) -> None:
    first = _prepare(tmp_path)
    before = _contents(tmp_path)

    again = _prepare(tmp_path, days=300)

    assert _contents(tmp_path) == before
    assert not again.is_new
    assert not again.is_renewed
    assert again.password == first.password


def test_a_certificate_is_renewed_by_the_same_authority_before_it_ends(tmp_path: Path) -> None:
    _prepare(tmp_path)
    before = _contents(tmp_path)

    again = _prepare(tmp_path, days=340)

    after = _contents(tmp_path)
    assert again.is_renewed
    assert {name for name in after if after[name] != before[name]} == {"server.pem"}
    authority = CertificateAuthority.load(after["ca.key"], after["ca.pem"])
    pem = after["server.pem"]
    assert authority.has_issued(pem[pem.index(b"-----BEGIN CERT") :])
    assert _server_facts(tmp_path).days_left(_NOW) == 340 + 365


def test_a_new_name_is_added_to_the_certificate(tmp_path: Path) -> None:
    _prepare(tmp_path)

    again = _prepare(tmp_path, hosts=["log.example"])

    assert again.is_renewed
    assert _server_facts(tmp_path).names == {"localhost", "127.0.0.1", "log.example"}


@pytest.mark.parametrize("count", range(1, 8))
def test_an_interrupted_set_up_is_continued(tmp_path: Path, count: int) -> None:
    """The files are made in this order: whatever is there is kept."""
    _prepare(tmp_path)
    order = [
        "ca.key", "ca.pem", "server.pem", "admin.password", "admin.properties", "kcat.conf",
        "README.txt", "broker.properties",
    ]  # fmt: skip
    before = _contents(tmp_path)
    for name in order[count:]:
        (tmp_path / "security" / name).unlink()

    again = _prepare(tmp_path)

    after = _contents(tmp_path)
    assert again.is_new
    assert set(after) == set(order)
    kept = order[:count] if count > 1 else []  # a key without its certificate signed nothing
    assert all(after[name] == before[name] for name in kept)


def test_the_settings_come_last(tmp_path: Path) -> None:
    _prepare(tmp_path, finishes=False)

    assert "broker.properties" not in _contents(tmp_path)


def test_an_authority_that_was_moved_away_is_needed_only_to_renew(tmp_path: Path) -> None:
    _prepare(tmp_path)
    os.remove(tmp_path / "security" / "ca.key")

    _prepare(tmp_path, days=100)
    _prepare(tmp_path, hosts=["other.example"])  # goes on with the names that it has

    with pytest.raises(ConfigError, match=r"2027-01-01, and ca\.key is not here"):
        _prepare(tmp_path, days=350)


def test_a_lost_authority_is_not_replaced(tmp_path: Path) -> None:
    _prepare(tmp_path)
    os.remove(tmp_path / "security" / "ca.key")
    os.remove(tmp_path / "security" / "server.pem")

    with pytest.raises(ConfigError, match=r"ca\.key.*put it back"):
        _prepare(tmp_path)


def test_damaged_files_are_reported(tmp_path: Path) -> None:
    _prepare(tmp_path)
    (tmp_path / "security" / "ca.key").write_text("nothing")

    with pytest.raises(ConfigError, match=r"ca\.key: cannot be used"):
        _prepare(tmp_path)


def test_the_password_of_an_operator_is_kept(tmp_path: Path) -> None:
    (tmp_path / "security").mkdir()
    (tmp_path / "security" / "admin.password").write_text("mine\n")

    assert _prepare(tmp_path).password == Secret("mine")


@pytest.mark.parametrize("content", [b"", b"\n", b"  "])
def test_an_empty_password_is_never_the_password_of_the_administrator(
    tmp_path: Path, content: bytes
) -> None:
    _prepare(tmp_path, finishes=False)
    (tmp_path / "security" / "admin.password").write_bytes(content)

    with pytest.raises(ConfigError, match=r"admin\.password: is empty"):
        _prepare(tmp_path)
