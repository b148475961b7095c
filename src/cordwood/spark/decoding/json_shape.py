"""The shape of JSON values that a type takes, in the form that the kernel `json_fit` reads."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from cordwood.spark.decoding import json_fit
from cordwood.spark.decoding.type_text import fields_of

Rows = np.ndarray[tuple[int], np.dtype[np.bool_]]

_LARGEST = {
    pa.int8(): 2**7 - 1,
    pa.int16(): 2**15 - 1,
    pa.int32(): 2**31 - 1,
    pa.int64(): 2**63 - 1,
}
_KINDS = {
    pa.string(): json_fit.TEXT,
    pa.bool_(): json_fit.BOOLEAN,
    pa.float64(): json_fit.DOUBLE,
    pa.float32(): json_fit.FLOAT,
    pa.date32(): json_fit.DATE,
    pa.binary(): json_fit.BASE64,
}


class JsonShape:
    """Finds the values that the parser will probably take. For one thread.

    A wrong answer costs time and nothing else: see `json_fit`. Types that the kernel does not know
    fit everything.
    """

    def __init__(self, kind: pa.StructType) -> None:
        self.nodes = array("q", bytes(8 * json_fit.NODE_WORDS))
        self.names = b""
        self._describe(0, kind)
        # The number of the object that had each field last, and the last such number.
        self.seen = array("q", bytes(8 * (len(self.nodes) // json_fit.NODE_WORDS + 1)))
        self._levels = array("q", bytes(8 * json_fit.DEPTH_MAX * json_fit.LEVEL_WORDS))

    def _describe(self, node: int, kind: Any) -> None:
        """Write the node, and its children behind all others."""
        at = node * json_fit.NODE_WORDS
        children = list(_children(kind))
        first = len(self.nodes) // json_fit.NODE_WORDS
        self.nodes[at : at + 3] = array("q", (_kind(kind), first, len(children)))
        self.nodes[at + 5] = _limit(kind)
        self.nodes.extend(bytes(json_fit.NODE_WORDS * len(children)))
        for number, (name, child) in enumerate(children, start=first):
            at = number * json_fit.NODE_WORDS
            start = len(self.names)
            self.names += name.encode()
            self.nodes[at + 3], self.nodes[at + 4] = start, len(self.names)
            self._describe(number, child)

    def fitting(self, values: Any) -> Rows:
        """Which of the values, none of which is null, probably fit."""
        count = len(values)
        fits = np.zeros(count, np.uint8)
        _, offsets, data = values.buffers()
        if count and data is not None:
            ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + count + 1]
            json_fit.mark_fitting(
                ends.data,
                np.frombuffer(data, np.uint8).data,
                self,
                self._levels,
                fits.data,
            )
        return fits.astype(np.bool_)


def _children(kind: Any) -> Iterator[tuple[str, pa.DataType]]:
    if pa.types.is_struct(kind):
        yield from ((child.name, child.type) for child in fields_of(kind))
    elif pa.types.is_list(kind):
        yield "", kind.value_type


def _kind(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return json_fit.OBJECT
    if pa.types.is_list(kind):
        return json_fit.LIST
    if pa.types.is_decimal(kind):
        return json_fit.DECIMAL
    if pa.types.is_timestamp(kind):
        return json_fit.TIME
    return json_fit.INTEGER if kind in _LARGEST else _KINDS.get(kind, json_fit.ANY)


def _limit(kind: Any) -> int:
    if pa.types.is_decimal(kind):
        return int((kind.precision - kind.scale) * 256 + kind.scale)
    return _LARGEST.get(kind, 0)
