"""Converts texts and plain numbers of the command line without pydantic.

Recent versions of Typer convert every value with pydantic, which takes longer to import than most
commands take to run. Texts and plain numbers within their bounds are converted here. Typer still
converts everything else, and reports all errors.
"""

from collections.abc import Callable
from typing import Any, Final

_TEXTS: Final = (str, list[str])


def skip_conversion(command: Any) -> None:
    """Convert the plain parameters of `command` here. No effect with older versions of Typer."""
    all_of = command.get_params

    def get_params(ctx: Any) -> Any:
        found = all_of(ctx)
        for parameter in found:
            _skip(parameter)
        return found

    command.get_params = get_params


def _skip(parameter: Any) -> None:
    is_converted = hasattr(parameter, "get_runtime_param") and hasattr(parameter, "type_descriptor")
    if is_converted and "get_runtime_param" not in vars(parameter):
        first = _PlainFirst(parameter.type_descriptor, parameter.get_runtime_param)
        parameter.get_runtime_param = lambda: first


class _PlainFirst:
    """Converts a plain value as Typer would; passes any other value to Typer's conversion."""

    def __init__(self, descriptor: Any, whole: Callable[[], Any]) -> None:
        self._annotation = descriptor.annotation
        self._info = descriptor.parameter_info
        self._whole = whole

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self._info.parser is None:
            if self._annotation in _TEXTS and _is_text(value):
                return value
            if self._annotation is int and _is_plain_number(value) and self._fits(int(value)):
                return int(value)
        return self._whole().coerce(value, param=param, ctx=ctx)

    def _fits(self, number: int) -> bool:
        least, most = self._info.min, self._info.max
        return (least is None or number >= least) and (most is None or number <= most)


def _is_text(value: object) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _is_plain_number(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() and value.removeprefix("-").isdigit() and len(value) < 19
    return isinstance(value, int) and not isinstance(value, bool)
