"""The checks of wheels and source distributions find what does not belong, and what is missing."""

from __future__ import annotations

import io
import platform
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

from deploy.outside_tool import ROOT

sys.path.insert(0, str(ROOT / "build_support"))

from wheel_checks import (
    metadata_complaints,
    name_complaints,
    path_complaints,
    sdist_complaints,
)
from wheel_targets import TARGETS, Interpreter

SUFFIX = ".cpython-313-x86_64-linux-gnu.so"
KERNEL = "cordwood/format/batch_scan"
NAMES = {
    "cordwood/__init__.py",
    "cordwood/py.typed",
    "cordwood/cli/app.py",
    KERNEL + SUFFIX,
    f"{KERNEL}.py",
    f"{KERNEL}.pyi",
    "cordwood-1.0.dist-info/METADATA",
}
METADATA = b"Version: 1.0\nLicense-Expression: Apache-2.0\nLicense-File: LICENSE\n\n"
INFORMATION = {
    "cordwood-1.0.dist-info/METADATA": METADATA,
    "cordwood-1.0.dist-info/licenses/LICENSE": b"Apache License",
    "cordwood-1.0.dist-info/entry_points.txt": b"cordwood = cordwood.cli.app:main",
}


def complaints_about(names: set[str]) -> list[str]:
    return list(name_complaints(names, kernels=["cordwood.format.batch_scan"], suffix=SUFFIX))


def test_a_wheel_with_all_kernels_and_nothing_else_is_in_order() -> None:
    assert complaints_about(NAMES) == []


def test_a_kernel_that_is_not_compiled_is_noticed() -> None:
    assert complaints_about(NAMES - {KERNEL + SUFFIX}) == [f"{KERNEL}{SUFFIX} is missing"]


def test_a_kernel_of_another_python_is_noticed() -> None:
    other = f"{KERNEL}.cpython-312-x86_64-linux-gnu.so"

    (complaint,) = complaints_about(NAMES | {other})

    assert complaint.startswith(other)


def test_tests_and_foreign_packages_are_noticed() -> None:
    added = {"tests/unit/test_it.py", "cordwood/tests/test_it.py", "cordwood/a.c"}

    named = {complaint.split()[0] for complaint in complaints_about(NAMES | added)}

    assert named == added


def test_metadata_must_name_the_version_and_a_licence_that_is_there() -> None:
    licence = "cordwood-1.0.dist-info/licenses/LICENSE"

    assert list(metadata_complaints(INFORMATION, version="1.0")) == []
    assert list(metadata_complaints(INFORMATION | {licence: b""}, version="1.0")) == [
        "the licence file LICENSE is missing or empty"
    ]
    assert list(metadata_complaints(INFORMATION, version="2.0")) == [
        "cordwood-2.0.dist-info/METADATA is missing"
    ]


def test_a_path_of_the_build_machine_is_noticed(tmp_path: Path) -> None:
    contents = {"clean.so": b"\x7fELF", "leak.so": b"\x7fELF" + str(tmp_path).encode()}

    (complaint,) = path_complaints(contents, root=tmp_path)

    assert complaint.startswith("leak.so contains ")


def test_a_source_distribution_holds_the_tracked_files_and_no_others(tmp_path: Path) -> None:
    sdist = tmp_path / "cordwood-1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in ("PKG-INFO", "setup.py", "stray.txt"):
            archive.addfile(tarfile.TarInfo(f"cordwood-1.0/{name}"), io.BytesIO())

    complaints = list(
        sdist_complaints(sdist, tracked=["setup.py", "tests/test_a.py", ".gitignore"])
    )

    assert complaints == ["tests/test_a.py is missing", "stray.txt is not a file of the project"]


def test_tags_and_suffixes_name_the_machine_and_the_kind_of_python() -> None:
    arm = next(target for target in TARGETS if target.machine == "aarch64")
    python = Interpreter(
        path=Path("python3.14t"),
        version="3.14",
        is_free_threaded=True,
        suffix=f".cpython-314t-{platform.machine()}-linux-gnu.so",
    )

    assert f"{python.wheel_tag}-{arm.platform_tag}" == "cp314-cp314t-manylinux_2_17_aarch64"
    assert python.suffix_for(arm) == ".cpython-314t-aarch64-linux-gnu.so"


def test_headers_for_one_machine_cannot_build_for_another() -> None:
    foreign = [target for target in TARGETS if not target.is_native]
    python = Interpreter(
        path=Path("python3.11"),
        version="3.11",
        is_free_threaded=False,
        suffix=SUFFIX,
        is_multiarch=True,
    )

    assert [target for target in foreign if python.can_build_for(target)] == []
    assert all(replace(python, is_multiarch=False).can_build_for(target) for target in TARGETS)
