"""The build backend: setuptools, plus `ziglang` as a requirement if there is no C compiler."""

from __future__ import annotations

from c_compiler import ZIG_REQUIREMENT, zig_could_help
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

BuildSettings = dict[str, str | list[str] | None] | None


def get_requires_for_build_wheel(config_settings: BuildSettings = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler_requirements()]


def get_requires_for_build_editable(config_settings: BuildSettings = None) -> list[str]:
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler_requirements()]


def _compiler_requirements() -> list[str]:
    return [ZIG_REQUIREMENT] if zig_could_help() else []
