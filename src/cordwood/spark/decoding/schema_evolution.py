"""Decides how the format of rows changes with what tasks met: pure but for the registry it asks.

New fields become columns, if the table may grow. Schemas are fetched by their ids; an id that the
registry does not know is remembered as unknown, and its values do not fit.
"""

import pyarrow as pa

from cordwood.errors import ConfigError
from cordwood.spark.decoding.avro_schemas import parse_avro
from cordwood.spark.decoding.column_format import ColumnFormat, Encoding
from cordwood.spark.decoding.debezium import row_type
from cordwood.spark.decoding.protobuf_schemas import MessageTypes, compile_proto, message_type
from cordwood.spark.decoding.row_decoding import RowFormat
from cordwood.spark.decoding.schema_registry import RegisteredSchema, SchemaRegistry
from cordwood.spark.decoding.type_merging import merge_types
from cordwood.spark.decoding.type_text import parse_schema, struct_of
from cordwood.value_class import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """What may change. `widens`: the table's format can widen the type of a column."""

    grows: bool
    widens: bool


class SchemaEvolution:
    """Changes formats. For one thread of the driver."""

    def __init__(self, rule: Evolution, registry: SchemaRegistry | None = None) -> None:
        self._rule = rule
        self._registry = registry
        self.notes: list[str] = []

    def with_ids(self, form: RowFormat, missing: "dict[str, frozenset[int]]") -> RowFormat:
        """The format with the schemas of these ids, for keys and for values."""
        key = self._fetched(form.key, missing.get("key", frozenset()), is_debezium=False)
        value = self._fetched(
            form.value, missing.get("value", frozenset()), is_debezium=form.is_debezium
        )
        return replace(form, key=key, value=value)

    def with_fields(self, form: RowFormat, found: "pa.DataType | None") -> RowFormat:
        """The format with new fields of JSON values."""
        if found is None or not self._rule.grows or form.value.schema is None:
            return form
        held = parse_schema(form.value.schema)
        # What JSON has says little about the width of a number: only a schema widens it.
        merged = merge_types(held, found, widens=False)
        self._note(merged.refused)
        if not merged.added:
            return form
        return replace(form, value=form.value.with_type(merged.type))

    def _fetched(
        self, column: ColumnFormat, ids: frozenset[int], *, is_debezium: bool
    ) -> ColumnFormat:
        for number in sorted(ids - set(column.writers) - column.unknown):
            if self._registry is None:
                raise ConfigError("registry", "", "is required: values have ids of schemas")
            found = self._registry.schema(number)
            if found is None:
                column = replace(column, unknown=column.unknown | {number})
                continue
            column = self._with_writer(column, number, found, is_debezium=is_debezium)
        return column

    def _with_writer(
        self, column: ColumnFormat, number: int, found: RegisteredSchema, *, is_debezium: bool
    ) -> ColumnFormat:
        if found.kind.lower() != column.encoding.value:
            self.notes.append(f"schema {number} is {found.kind}, not {column.encoding}")
            return replace(column, unknown=column.unknown | {number})
        try:
            column, found, kind = _typed(column, found)
        except ConfigError as error:
            # Its values go to the rejected ones, with this reason.
            self.notes.append(f"schema {number}: {error}")
            return replace(column, writers={**column.writers, number: found})
        if is_debezium:
            kind = row_type(kind) or struct_of([])
        column = replace(column, writers={**column.writers, number: found})
        if column.schema is None:
            return column.with_type(kind)
        if not self._rule.grows:
            return column
        merged = merge_types(parse_schema(column.schema), kind, widens=self._rule.widens)
        self._note(merged.refused)
        return column.with_type(merged.type)

    def _note(self, sentences: tuple[str, ...]) -> None:
        self.notes += [text for text in sentences if text not in self.notes][:100]


def _typed(
    column: ColumnFormat, found: RegisteredSchema
) -> "tuple[ColumnFormat, RegisteredSchema, pa.DataType]":
    """The schema as tasks need it, and its type. The first Protobuf schema names the message."""
    if column.encoding is Encoding.AVRO:
        references = [text for _, text in found.references]
        return column, found, parse_avro(found.text, references=references).type
    descriptors = compile_proto(found.text, found.references)
    types = MessageTypes(descriptors)
    message = types.at((0,)) if column.message is None else types.named(column.message)
    column = replace(column, message=message.full_name)
    compiled = RegisteredSchema(kind=found.kind, text=descriptors)
    return column, compiled, message_type(message)
