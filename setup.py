"""Compile the kernels, which pyproject.toml cannot express. See build_support/."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent / "build_support"))

from kernel_extensions import KernelBuild, kernel_extensions

setup(ext_modules=kernel_extensions(), cmdclass={"build_ext": KernelBuild})
