"""What a decoder makes of a column of values.

A decoder is a function of its schema and of one value: the result for a value does not depend on
the values around it, nor on how they are cut into batches. A run that repeats the work of a killed
one relies on that.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from cordwood.value_class import dataclass, field

REASON_CHARS_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedValues:
    """One row for each value.

    values   typed; null for a null value, and for one that does not fit
    reasons  why a value does not fit; null if it fits
    found    a type with fields that the schema lacks, if the decoder looks for them
    missing  ids of schemas that the decoder would need
    """

    values: "pa.Array[Any]"
    reasons: "pa.Array[Any]"
    found: pa.DataType | None = None
    missing: frozenset[int] = field(default_factory=frozenset)


class Decoder(Protocol):
    """Decodes batches of values. For one thread."""

    @property
    def type(self) -> pa.DataType:
        """The type of `DecodedValues.values`."""
        ...

    def decode(self, values: "pa.Array[Any]") -> DecodedValues:
        """Decode a binary array. Raises nothing for the sake of a value."""
        ...


class MisfitError(ValueError):
    """A value does not fit. The message says where and why."""


def short_reason(text: str) -> str:
    """A reason of bounded length, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= REASON_CHARS_MAX else f"{line[: REASON_CHARS_MAX - 1]}…"


def no_reasons(count: int) -> "pa.Array[Any]":
    """The reasons of values that all fit."""
    return pa.nulls(count, pa.string())


def scattered(
    kind: Any, count: int, parts: Sequence[tuple["pa.Array[Any]", "pa.Array[Any]"]]
) -> Any:
    """An array of `count` rows from parts, each with the rows it goes to; others are null."""
    if not parts:
        return pa.nulls(count, kind)
    rows: Any = pa.concat_arrays([rows for rows, _ in parts])
    values: Any = pa.concat_arrays([values for _, values in parts])
    places = np.full(count, -1, np.int64)
    places[np.asarray(rows)] = np.arange(len(values), dtype=np.int64)
    return values.take(pa.array(places, mask=places < 0))
