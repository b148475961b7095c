"""References to secrets: files, directories, environment variables."""

from pathlib import Path

import pytest

from cordwood.security.secret_references import (
    has_reference,
    is_reference,
    resolve_references,
)


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("hunter2\n")
    path.chmod(0o600)
    return path


def test_a_whole_file_without_blanks_at_its_ends(secret_file: Path) -> None:
    found = resolve_references(f"${{file:{secret_file}}}", {})

    assert found.text == "hunter2"
    assert found.open_files == ()
    assert "hunter2" not in repr(found)


def test_one_key_of_a_properties_file(tmp_path: Path) -> None:
    path = tmp_path / "app.properties"
    path.write_text("user=alice\ndb\\:password = hunter2 \n")

    assert resolve_references(f"${{file:{path}:user}}", {}).text == "alice"
    assert resolve_references(f"${{file:{path}:db:password}}", {}).text == "hunter2"


def test_a_file_of_a_directory(secret_file: Path) -> None:
    assert resolve_references(f"${{dir:{secret_file.parent}:password}}", {}).text == "hunter2"


def test_a_variable_and_text_around_it() -> None:
    found = resolve_references('user="${env:U}" password="${env:P}"', {"U": "alice", "P": "x"})

    assert found.text == 'user="alice" password="x"'


def test_what_a_reference_gives_is_not_searched_for_references() -> None:
    assert resolve_references("${env:A}", {"A": "${env:B}", "B": "x"}).text == "${env:B}"


def test_two_dollars_write_the_characters_themselves() -> None:
    assert resolve_references("$${env:A}", {"A": "x"}).text == "${env:A}"
    assert resolve_references("${no-colon} $5 {x}", {}).text == "${no-colon} $5 {x}"


def test_a_file_that_everybody_can_read_is_named(secret_file: Path) -> None:
    secret_file.chmod(0o644)

    assert resolve_references(f"${{file:{secret_file}}}", {}).open_files == (str(secret_file),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${file:/no/such/file}", r"\$\{file:/no/such/file\} cannot be read: No such file"),
        ("${file:relative}", "absolute path"),
        ("${dir:/run}", "with the name of a file"),
        ("${dir:/run:../etc/passwd}", "with the name of a file"),
        ("${dir:/run:..}", "with the name of a file"),
        ("${env:NOT_SET}", "no such environment variable"),
        ("${vault:secret/x}", "unknown provider; known are file, dir, env"),
        ("${file:/tmp/a\0b}", "cannot be read"),
        ("${file:/tmp}", "cannot be read"),
    ],
)
def test_a_reference_that_fails_is_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        resolve_references(text, {})


def test_an_error_does_not_show_the_content(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("hunter2")

    with pytest.raises(ValueError, match="no such key") as raised:
        resolve_references(f"${{file:{path}:key}}", {})

    assert "hunter2" not in str(raised.value)


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="larger than"):
        resolve_references("${file:/dev/zero}", {})


def test_a_whole_reference_can_be_shown() -> None:
    assert is_reference("${env:A}")
    assert not is_reference("x${env:A}")
    assert not is_reference("$${")
    assert has_reference("x${env:A}")
    assert not has_reference("x${A}")
