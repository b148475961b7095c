"""How the columns of a table may change: the rules of schema evolution, as pure functions.

    new field                            added, at the end, nullable
    field that no longer comes           stays, null from then on
    renamed field                        a removed one and a new one
    int to long, float to double,
    decimal of more digits               widened, if the table's format can do that
    any other change of type             refused: such values do not fit

A file may name any number of fields, so their number and their names have limits. Spark compares
names without case: a name that differs only in case from another one is refused.
"""

from typing import Any, Final

import pyarrow as pa

from cordwood.spark.decoding.type_text import (
    DEPTH_MAX,
    count_fields,
    fields_of,
    list_of,
    struct_of,
)
from cordwood.value_class import dataclass

COLUMNS_MAX: Final = 1000  # of a table that grows by itself
NAME_CHARS_MAX: Final = 255
_FORBIDDEN: Final = frozenset(" ,;{}()\n\t=")  # Delta and Spark refuse them in the names of columns
_WIDENINGS: Final = {
    (pa.int8(), pa.int16()), (pa.int8(), pa.int32()), (pa.int8(), pa.int64()),
    (pa.int16(), pa.int32()), (pa.int16(), pa.int64()), (pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedType:
    """The type after the change, and sentences about fields, each with its path, `a.b`.

    refused        new fields that the table cannot have
    contradicted   fields whose type is another one, and stays as it was
    """

    type: pa.DataType
    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()


def merge_types(
    held: pa.DataType,
    found: pa.DataType,
    *,
    widens: bool = True,
    columns_max: int = COLUMNS_MAX,
) -> MergedType:
    """`held` with what `found` adds. The order and the types of `held` stay."""
    merge = _Merge(widens=widens, room=columns_max - count_fields(held))
    kind = merge.merged(held, found, "", 0)
    return MergedType(
        type=kind,
        added=tuple(merge.added),
        widened=tuple(merge.widened),
        refused=tuple(merge.refused),
        contradicted=tuple(merge.contradicted),
    )


class _Merge:
    def __init__(self, *, widens: bool, room: int) -> None:
        self._widens = widens
        self._room = room
        self.added: list[str] = []
        self.widened: list[str] = []
        self.refused: list[str] = []
        self.contradicted: list[str] = []

    def merged(self, held: Any, found: Any, path: str, depth: int) -> pa.DataType:
        if held == found or pa.types.is_null(found):
            return held  # type: ignore[no-any-return]
        if pa.types.is_struct(held) and pa.types.is_struct(found):
            return self._struct(held, found, path, depth)
        if pa.types.is_list(held) and pa.types.is_list(found):
            return list_of(self.merged(held.value_type, found.value_type, f"{path}[]", depth + 1))
        if pa.types.is_map(held) and pa.types.is_map(found) and held.key_type == found.key_type:
            item = self.merged(held.item_type, found.item_type, f"{path}{{}}", depth + 1)
            return pa.map_(held.key_type, item)
        if _is_widening(found, held):
            return held  # type: ignore[no-any-return]
        if self._widens and _is_widening(held, found):
            self.widened.append(f"{path} from {held} to {found}")
            return found  # type: ignore[no-any-return]
        self.contradicted.append(f"{path} is {held}, not {found}")
        return held  # type: ignore[no-any-return]

    def _struct(self, held: Any, found: Any, path: str, depth: int) -> pa.DataType:
        fields = []
        there = {child.name: child for child in fields_of(found)}
        for child in fields_of(held):
            name = f"{path}.{child.name}" if path else child.name
            new = there.get(child.name)
            kind = child.type if new is None else self.merged(child.type, new.type, name, depth + 1)
            fields.append(child.with_type(kind))
        names = {child.name.lower() for child in fields}
        for child in fields_of(found):
            if held.get_field_index(child.name) >= 0:
                continue
            name = f"{path}.{child.name}" if path else child.name
            kind = _known(child.type)
            why = self._obstacle(child.name, kind, names, depth)
            if kind is None:
                continue  # it was null, or empty, wherever it was: its type is not known yet
            if why is not None:
                self.refused.append(f"{name} {why}")
                continue
            names.add(child.name.lower())
            self._room -= 1 + count_fields(kind)
            self.added.append(name)
            fields.append(pa.field(child.name, kind, nullable=True))
        return struct_of(fields)

    def _obstacle(
        self, name: str, kind: pa.DataType | None, names: set[str], depth: int
    ) -> str | None:
        if name.lower() in names:
            return "differs from another field only in case"
        if not name or len(name) > NAME_CHARS_MAX or not _FORBIDDEN.isdisjoint(name):
            return "has a name that tables do not accept"
        if kind is not None and self._room < 1 + count_fields(kind):
            return "is one field too many"
        if depth >= DEPTH_MAX:
            return "is nested too deep"
        return None


def _is_widening(held: Any, found: Any) -> bool:
    if (held, found) in _WIDENINGS:
        return True
    if pa.types.is_decimal(held) and pa.types.is_decimal(found):
        return bool(held.scale == found.scale and held.precision <= found.precision)
    return False


def _known(kind: Any) -> pa.DataType | None:
    """The type without the parts of which nothing is known; None if nothing is left."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        item = _known(kind.value_type)
        return None if item is None else list_of(item)
    if pa.types.is_struct(kind):
        fields = [
            pa.field(child.name, known, nullable=True)
            for child in fields_of(kind)
            if (known := _known(child.type)) is not None
        ]
        return struct_of(fields) if fields else None
    return kind  # type: ignore[no-any-return]
