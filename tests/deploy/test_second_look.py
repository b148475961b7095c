"""Which failed tests run a second time."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENT = "tests/wire/test_a.py::test_b[c d]"


def second_look(failures: list[str], tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    listed = tmp_path / "failures"
    listed.write_text("".join(f"{name}\n" for name in failures))
    return subprocess.run(
        [sys.executable, ROOT / "build_support/second_look.py", listed, "--", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("failures", "reason"),
    [
        ([], "no test did"),
        (["tests/unit/log/test_a.py::test_b"], "depends on no other program"),
        ([CLIENT, "tests/property/test_a.py::test_b"], "depends on no other program"),
        ([f"{CLIENT}{n}" for n in range(4)], "4 tests failed"),
    ],
)
def test_a_failure_of_our_own_code_is_final(
    failures: list[str], reason: str, tmp_path: Path
) -> None:
    looked = second_look(failures, tmp_path)

    assert looked.returncode == 1
    assert reason in looked.stderr


def test_a_test_with_another_program_must_pass_alone_and_is_named(tmp_path: Path) -> None:
    looked = second_look([CLIENT], tmp_path)  # --version: pytest runs nothing and succeeds

    assert looked.returncode == 0
    assert "UNSTEADY" in looked.stdout
    assert CLIENT in looked.stdout


def test_the_names_of_failed_tests_are_written_down(tmp_path: Path) -> None:
    source = "import pytest\n@pytest.fixture\ndef broken(): raise OSError\n"
    source += "def test_good(): pass\ndef test_bad(): assert False\ndef test_error(broken): pass\n"
    (tmp_path / "test_it.py").write_text(source)
    listed = tmp_path / "failures"

    run: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        ROOT,
    ]
    ours: list[str | Path] = ["--confcutdir", ROOT, "-p", "conftest", "--failures-to", listed]
    subprocess.run([*run, *ours, tmp_path], cwd=ROOT / "tests", capture_output=True, check=False)

    assert [name.split("::")[1] for name in listed.read_text().splitlines()] == [
        "test_bad",
        "test_error",
    ]
