"""Every module written for Cython is one that the build compiles, and runs without it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_module_in_pure_python_mode_is_listed_for_compilation() -> None:
    source = ROOT / "src"
    written = {
        ".".join(path.relative_to(source).with_suffix("").parts)
        for path in source.rglob("*.py")
        if "cython: language_level" in path.read_text(encoding="utf-8")[:200]
    }

    assert written == set(listed_kernels())


def listed_kernels() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(project["tool"]["cordwood"]["kernels"])


WITHOUT_CYTHON = """
import sys, tempfile
from importlib.abc import MetaPathFinder
from importlib.util import spec_from_file_location

kernels = sys.argv[2:]

class PlainKernels(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in kernels:
            return spec_from_file_location(name, f"{sys.argv[1]}/{name.replace('.', '/')}.py")

sys.modules["cython"] = None
sys.meta_path.insert(0, PlainKernels())

import cordwood
with tempfile.TemporaryDirectory() as path, cordwood.open(path) as store:
    topic = store.create_topic("orders", config={"cleanup.policy": "compact"})
    topic.append_many([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    store.compact("orders", force=True)
    assert [r.value for r in topic.partition(0).read()] == [b"2", b"3"]
for name in kernels:
    __import__(name)
    assert sys.modules[name].__file__.endswith(".py"), name
"""


def test_kernels_run_as_plain_python_where_cython_is_not_installed() -> None:
    command = [sys.executable, "-c", WITHOUT_CYTHON, str(ROOT / "src"), *listed_kernels()]

    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert finished.returncode == 0, finished.stderr
