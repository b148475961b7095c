"""The kernels as extension modules: Cython to C, C to a shared object beside the source.

``[tool.cordwood] kernels`` in pyproject.toml lists the kernels. Each is ordinary Python that also
runs uncompiled, so a machine without a compiler gets a working, slow package and a warning.
"""

from __future__ import annotations

import os
import tomllib
import warnings
from pathlib import Path

from c_compiler import Compiler, find_compiler
from setuptools import Extension
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent.parent

DIRECTIVES = {
    "language_level": 3,
    # The kernels themselves compare every read with the end of the buffer.
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "freethreading_compatible": True,
}


def kernel_names() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names: list[str] = settings["tool"]["cordwood"]["kernels"]
    return names


def kernel_source(name: str) -> Path:
    return (ROOT / "src").joinpath(*name.split(".")).with_suffix(".py")


def kernel_extensions() -> list[Extension]:
    return [
        Extension(name, [kernel_source(name).relative_to(ROOT).as_posix()])
        for name in kernel_names()
    ]


class KernelBuild(build_ext):
    """Compiles the kernels with the compiler that `find_compiler` chose, not the one of Python.

    A failure leaves the package plain, with a warning, unless `is_required` is set: wheels that
    others install are built with ``CORDWOOD_KERNELS=required``.
    """

    is_required = os.environ.get("CORDWOOD_KERNELS") == "required"
    extensions: list[Extension]

    def build_extensions(self) -> None:
        compiler = find_compiler()
        if compiler is None:
            self._stay_plain("no working C compiler was found")
            return
        try:
            self._compile_with(compiler)
        except Exception as error:
            if self.is_required:
                raise
            self._stay_plain(f"{compiler.name} could not build them: {error}")

    def _compile_with(self, compiler: Compiler) -> None:
        from Cython.Build import cythonize

        for extension in self.extensions:
            (translated,) = cythonize(
                [Extension(extension.name, extension.sources)],
                build_dir=str(Path(self.build_temp, "cython")),
                compiler_directives=DIRECTIVES,
                force=True,
                quiet=True,
            )
            extension.sources = translated.sources
        self.compiler.set_executables(
            compiler=compiler.compile_command,
            compiler_so=compiler.compile_command,
            linker_so=compiler.link_command,
        )
        super().build_extensions()

    def _stay_plain(self, reason: str) -> None:
        if self.is_required:
            raise RuntimeError(reason)
        for extension in self.extensions:  # one from an earlier build would hide the source
            Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
        self.extensions = []
        warnings.warn(f"cordwood's kernels run as slow, plain Python: {reason}", stacklevel=2)
