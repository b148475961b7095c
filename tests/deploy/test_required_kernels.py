"""A wheel without compiled kernels is not built by accident."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from deploy.outside_tool import ROOT

_BUILD = """
from kernel_extensions import KernelBuild
from setuptools import Distribution

command = KernelBuild(Distribution())
command.extensions = []
command.build_extensions()
"""


@pytest.mark.parametrize(("required", "status"), [("", 0), ("required", 1)])
def test_without_a_compiler_the_build_fails_only_if_kernels_are_required(
    required: str, status: int
) -> None:
    settings = {"CORDWOOD_CC": "none", "CORDWOOD_KERNELS": required}

    finished = subprocess.run(
        [sys.executable, "-c", _BUILD],
        env=os.environ | settings | {"PYTHONPATH": str(ROOT / "build_support")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert finished.returncode == status
    assert "no working C compiler was found" in finished.stderr
