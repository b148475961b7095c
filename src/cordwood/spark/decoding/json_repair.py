"""One JSON value, made to fit a type or refused with the reason: the exact, slow way.

What `json_decoder` takes at once needs no repair. What needs it: a text field with another kind of
value, which is kept as its JSON; an object for a MAP; a field that is there twice, of which the
last counts; more digits of a second than a microsecond has.
"""

import base64
import json
import re
import sys
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from cordwood.spark.decoding.decoded_values import MisfitError
from cordwood.spark.decoding.type_text import fields_of

NOT_TEXT: Final = "the value is not UTF-8"
NOT_OBJECT: Final = "the value is not a JSON object"
NOT_JSON: Final = "the value is not JSON"

_FRACTION: Final = re.compile(r"(\.\d{6})\d+")
_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_LIMITS: Final = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
}
_DIGITS_MAX: Final = 20
_FLOAT_MAX: Final = (2.0 - 2.0**-24) * 2.0**127  # larger ones are rounded to infinity


class UnreadableError(MisfitError):
    """Python's parser does not read the value, and another one may."""


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def repair_value(value: bytes, kind: pa.DataType) -> str:
    """JSON that the decoder takes. Raises `MisfitError`."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise MisfitError(NOT_TEXT) from None
    try:
        content = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    except RecursionError:
        raise UnreadableError("the value is nested too deep") from None
    except ValueError as error:
        kind_of_error = UnreadableError if "Inf" in text else MisfitError
        raise kind_of_error(f"{NOT_JSON}: {error}") from None
    if not isinstance(content, dict):
        raise MisfitError(NOT_OBJECT)
    return _render(_fitted(content, kind, ""))


def _fitted(content: Any, kind: Any, path: str) -> Any:
    if content is None:
        return None
    if pa.types.is_struct(kind):
        if not isinstance(content, dict):
            raise _misfit(path, content, "an object")
        return {
            child.name: _fitted(content[child.name], child.type, _inside(path, child.name))
            for child in fields_of(kind)
            if child.name in content
        }
    if pa.types.is_list(kind):
        if not isinstance(content, list):
            raise _misfit(path, content, "a list")
        return [_fitted(item, kind.value_type, f"{path}[{n}]") for n, item in enumerate(content)]
    if pa.types.is_map(kind):
        if not isinstance(content, dict):
            raise _misfit(path, content, "an object")
        return [
            {"key": name, "value": _fitted(item, kind.item_type, _inside(path, name))}
            for name, item in content.items()
        ]
    return _scalar(content, kind, path)


def _scalar(content: Any, kind: pa.DataType, path: str) -> Any:
    if pa.types.is_string(kind):
        text = content if type(content) is str else _render(content)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise MisfitError(f"{path} has half a character, which no text can have") from None
        return text
    is_text, is_number = type(content) is str, isinstance(content, _Number)
    if pa.types.is_boolean(kind):
        fits = isinstance(content, bool)
    elif pa.types.is_integer(kind):
        fits = is_number and content.lstrip("-").isdecimal() and len(content) <= _DIGITS_MAX
        low, high = _LIMITS[kind]
        fits = fits and low <= int(content) <= high
    elif pa.types.is_floating(kind):
        fits = is_number and not _is_too_large(content, kind)
    elif pa.types.is_decimal(kind):
        fits = (is_number or is_text) and not _has_more_digits(content, kind)
    else:
        fits = is_text and not _is_surely_refused(content, kind)
        if fits and pa.types.is_timestamp(kind):
            return _FRACTION.sub(r"\1", content)
    if not fits:
        raise _misfit(path, content, f"of type {kind}")
    return content


# The parser decides about times and decimals. What it refuses for certain is found here, because
# it would have to be asked about each value by itself.


def _has_more_digits(number: str, kind: Any) -> bool:
    """Whether a number has more digits before the point than a decimal type."""
    try:
        found = Decimal(number)
    except InvalidOperation:
        return False
    return found.is_finite() and found != 0 and found.adjusted() >= kind.precision - kind.scale


def _is_surely_refused(text: str, kind: pa.DataType) -> bool:
    """Whether a text is no date, does not begin with one as a time does, or is not base64."""
    if pa.types.is_binary(kind):
        try:
            base64.b64decode(text, validate=True)
        except ValueError:
            return True
        return False
    found = _DATE.match(text)
    if found is None or (len(text) > found.end() and text[found.end()] not in "T "):
        return True
    year, month, day = map(int, found.groups())
    try:
        date(year or 4, month, day)  # Python has no year 0, which is a leap year as 4 is
    except ValueError:
        return True
    return pa.types.is_date(kind) and len(text) != found.end()


def _is_too_large(number: str, kind: pa.DataType) -> bool:
    """Whether only the rounding to `kind` makes the number infinite."""
    limit = _FLOAT_MAX if pa.types.is_float32(kind) else sys.float_info.max
    return number.lstrip("-")[:1].isdecimal() and abs(float(number)) > limit


def _misfit(path: str, content: Any, wanted: str) -> MisfitError:
    shown = _render(content)
    shown = shown if len(shown) <= 40 else f"{shown[:39]}…"
    return MisfitError(f"{path} is {shown}, not {wanted}")


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _render(content: Any) -> str:
    """JSON, with numbers as they were written."""
    match content:
        case _Number():
            return str(content)
        case dict():
            inside = (f"{json.dumps(name)}:{_render(item)}" for name, item in content.items())
            return f"{{{','.join(inside)}}}"
        case list():
            return f"[{','.join(map(_render, content))}]"
        case _:
            return json.dumps(content, ensure_ascii=True)
