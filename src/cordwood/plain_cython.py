"""Replaces the `cython` module when kernels run as plain Python and Cython is not installed.

It has only the names that kernels use at run time; their annotations are never evaluated.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

_F = TypeVar("_F")

compiled = False
bint = longlong = ulonglong = uint = int = uchar = Py_ssize_t = size_t = p_char = void = object
NULL = None


def cast(_type: object, value: Any) -> Any:
    return value


def declare(_type: object, value: Any) -> Any:
    return value


def returns(_types: object) -> Callable[[_F], _F]:
    return lambda function: function


def cfunc(function: _F) -> _F:
    return function


inline = cfunc


class _NoGil(AbstractContextManager[None]):
    """`nogil`, as a decorator and as a context manager; it has no effect in plain Python."""

    def __call__(self, function: _F) -> _F:
        return function

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


nogil = _NoGil()


def exceptval(*, check: bool) -> Callable[[_F], _F]:
    return lambda function: function
