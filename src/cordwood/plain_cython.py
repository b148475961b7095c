"""Stands in for the `cython` module when kernels run as plain Python and Cython is absent.

Has only what kernels use at run time: their annotations are never evaluated.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

_F = TypeVar("_F")

compiled = False
longlong = ulonglong = uint = int = uchar = Py_ssize_t = size_t = p_char = void = object


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
    """`nogil` is a decorator and a context manager; in plain Python neither has an effect."""

    def __call__(self, function: _F) -> _F:
        return function

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


nogil = _NoGil()


def exceptval(*, check: bool) -> Callable[[_F], _F]:
    return lambda function: function
