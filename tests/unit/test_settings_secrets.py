"""Secrets in settings: referred to, used, and never shown."""

import traceback
from pathlib import Path

import pytest

from cordwood.broker.config.tls_config import TlsConfig
from cordwood.errors import ConfigError
from cordwood.settings import Assignment, Settings, load_settings, settings_from

_TLS = {"listeners": "SSL://127.0.0.1:9093"}


def _shown(settings: Settings, name: str) -> str:
    return next(each.value for each in settings.effective if each.key.name == name)


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("hunter2\n")
    path.chmod(0o600)
    return path


def test_a_reference_is_used_and_shown_unresolved(secret_file: Path) -> None:
    reference = f"${{file:{secret_file}}}"

    settings = settings_from({**_TLS, "ssl.key.password": reference})

    (listener,) = settings.security.listeners
    assert listener.tls is not None
    assert listener.tls.ssl_key_password == "hunter2"
    assert _shown(settings, "ssl.key.password") == reference
    assert settings.open_secrets == ()
    assert "hunter2" not in repr(settings)


def test_a_value_of_which_a_part_is_a_reference_is_hidden(secret_file: Path) -> None:
    jaas = f'PlainLoginModule required user_a="x1y2" user_b="${{file:{secret_file}}}";'

    settings = settings_from({"sasl.jaas.config": jaas})

    assert _shown(settings, "sasl.jaas.config") == "[hidden]"
    assert "x1y2" not in repr(settings)


def test_references_work_in_files_and_variables(tmp_path: Path, secret_file: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"num.partitions=${{env:PARTS}}\nssl.key.password=${{dir:{tmp_path}:password}}\n"
    )

    settings = load_settings(
        file=file, environment={"PARTS": "7", "CORDWOOD_SUPER_USERS": "User:${env:PARTS}"}
    )

    assert settings.topic_defaults is not None
    assert _shown(settings, "num.partitions") == "${env:PARTS}"
    assert settings.broker.num_partitions == 7
    assert settings.security.access.super_users == "User:7"


def test_a_file_that_everybody_can_read_is_reported(secret_file: Path) -> None:
    secret_file.chmod(0o644)

    settings = settings_from({"ssl.key.password": f"${{file:{secret_file}}}"})

    assert settings.open_secrets == (str(secret_file),)


def test_a_reference_that_fails_is_reported_with_key_and_source() -> None:
    with pytest.raises(ConfigError) as raised:
        settings_from({"ssl.key.password": "${file:/no/such}"}, source="server.properties")

    assert "ssl.key.password" in str(raised.value)
    assert "${file:/no/such} cannot be read: No such file" in str(raised.value)
    assert "(from server.properties)" in str(raised.value)


def test_an_error_shows_the_reference_and_not_what_it_refers_to() -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(environment={"N": "hunter2", "CORDWOOD_NUM_PARTITIONS": "${env:N}"})

    shown = "".join(traceback.format_exception(raised.value))
    assert "num.partitions = ${env:N}" in shown
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("value", [["hunter2"], 12345678])
def test_an_error_of_a_sensitive_key_does_not_show_its_value(value: object) -> None:
    with pytest.raises(ConfigError) as raised:
        settings_from({"ssl.keystore.password": value})

    shown = "".join(traceback.format_exception(raised.value))
    assert "[hidden]" in shown
    assert "hunter2" not in shown.replace(repr(value), "")
    assert "12345678" not in str(raised.value)


@pytest.mark.parametrize(
    "key", ["ssl.keystore.pasword", "listener.name.plaintext.ssl.keystore.passwrd"]
)
def test_an_unknown_key_that_looks_secret_does_not_show_its_value(key: str) -> None:
    with pytest.raises(ConfigError, match=key) as raised:
        settings_from({key: "hunter2"})

    assert "hunter2" not in str(raised.value)


def test_configs_and_assignments_do_not_show_secrets() -> None:
    assert "hunter2" not in repr(TlsConfig(ssl_key_password="hunter2"))
    assert "hunter2" not in repr(Assignment("ssl.key.password", "hunter2", "--set"))


def test_kafkas_declaration_of_providers_is_accepted() -> None:
    settings = settings_from(
        {
            "config.providers": "file",
            "config.providers.file.class": "org.apache.FileConfigProvider",
        }
    )

    assert [idle.name for idle in settings.without_effect] == [
        "config.providers",
        "config.providers.file.class",
    ]
