"""How the rows of a table are decoded: what the command says, and what the table keeps of it.

The table decides. A new table takes the choice of the command; a later run may leave it out, or
repeat it. A given schema may add fields and widen types; anything else is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from cordwood.errors import ConfigError
from cordwood.spark.decoding.avro_schemas import parse_avro
from cordwood.spark.decoding.column_format import ColumnFormat, Encoding, known_ids
from cordwood.spark.decoding.debezium import row_type
from cordwood.spark.decoding.json_inference import infer_type
from cordwood.spark.decoding.protobuf_schemas import MessageTypes, compile_proto, message_type
from cordwood.spark.decoding.row_decoding import RowFormat
from cordwood.spark.decoding.schema_evolution import Evolution, SchemaEvolution
from cordwood.spark.decoding.schema_registry import SchemaRegistry
from cordwood.spark.decoding.type_merging import merge_types
from cordwood.spark.decoding.type_text import parse_schema, render_schema
from cordwood.spark.tables.time_partitions import PartitionBy
from cordwood.value_class import dataclass, replace

INFER: Final = "infer"
DESCRIPTORS: Final = "base64:"  # before a compiled Protobuf schema
DEBEZIUM: Final = "debezium"

_HEADERS: Final = "headers"
_ENVELOPE: Final = "envelope"
_GROWS: Final = "grows"
_PARTITION_BY: Final = "partition_by"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChoice:
    """How to decode one column. `schema` is a text of the format's kind, or `infer` for JSON."""

    encoding: Encoding | None = None
    schema: str | None = None
    message: str | None = None

    @property
    def is_given(self) -> bool:
        return self.encoding is not None or self.schema is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChoice:
    """What the command says. None, everywhere, leaves it to the table.

    registry    URL of a schema registry
    grows       new fields become columns; by default only those of schemas from a registry
    """

    key: ColumnChoice = ColumnChoice()
    value: ColumnChoice = ColumnChoice()
    registry: str | None = None
    has_text_headers: bool | None = None
    is_debezium: bool | None = None
    grows: bool | None = None
    partition_by: PartitionBy | None = None

    def __post_init__(self) -> None:
        for name, each in (("key", self.key), ("value", self.value)):
            _check_column(name, each, has_registry=self.registry is not None)
        if self.registry is not None:
            SchemaRegistry(self.registry)


def _check_column(name: str, choice: ColumnChoice, *, has_registry: bool) -> None:
    option = f"{name} schema"
    encoding = choice.encoding or (Encoding.JSON if choice.schema is not None else None)
    match encoding:
        case Encoding.BYTES | Encoding.TEXT if choice.schema is not None:
            raise ConfigError(option, choice.schema, f"has no meaning for {encoding}")
        case Encoding.JSON if choice.schema not in {None, INFER}:
            parse_schema(choice.schema or "", option=option)
        case Encoding.AVRO | Encoding.PROTOBUF if choice.schema is None and not has_registry:
            raise ConfigError(option, "", f"{encoding} needs a schema or a registry")
        case Encoding.AVRO if choice.schema is not None:
            parse_avro(choice.schema, option=option)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """The format of a table's rows, and how it may change."""

    form: RowFormat
    grows: bool
    partition_by: PartitionBy = PartitionBy.NONE

    def settings(self) -> dict[str, str]:
        form = self.form
        kept = {**form.key.settings("key"), **form.value.settings("value")}
        if form.has_text_headers:
            kept[_HEADERS] = "text"
        if form.is_debezium:
            kept[_ENVELOPE] = DEBEZIUM
        if self.grows:
            kept[_GROWS] = "true"
        if self.partition_by is not PartitionBy.NONE:
            kept[_PARTITION_BY] = self.partition_by.value
        return kept

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> "TableRows":
        grows = settings.get(_GROWS) == "true"
        value = ColumnFormat.from_settings("value", settings)
        return cls(
            form=RowFormat(
                key=ColumnFormat.from_settings("key", settings),
                value=value,
                has_text_headers=settings.get(_HEADERS) == "text",
                is_debezium=settings.get(_ENVELOPE) == DEBEZIUM,
                looks_for_more=grows and value.encoding is Encoding.JSON,
            ),
            grows=grows,
            partition_by=PartitionBy(settings.get(_PARTITION_BY, PartitionBy.NONE)),
        )


def new_rows(
    choice: RowChoice, sample: Callable[[], Iterable[tuple[bytes | None, bytes | None]]]
) -> TableRows:
    """The rows of a new table. `sample` returns keys and values to infer a schema from."""
    has_registry = choice.registry is not None
    pairs: list[tuple[bytes | None, bytes | None]] | None = None

    def column(name: str, each: ColumnChoice, *, is_debezium: bool = False) -> ColumnFormat:
        nonlocal pairs
        encoding = each.encoding or (Encoding.BYTES if each.schema is None else Encoding.JSON)
        if encoding is not Encoding.JSON or each.schema not in {None, INFER}:
            return _column(f"{name} schema", encoding, each, has_registry, is_debezium=is_debezium)
        if pairs is None:
            pairs = list(sample())
        values = [key if name == "key" else value for key, value in pairs]
        if has_registry:
            values = [None if value is None else value[5:] for value in values]
        found = infer_type(values)
        kind = (row_type(found) if is_debezium else found) or found
        if not kind.num_fields:
            raise ConfigError(
                f"{name} schema",
                INFER,
                "no value is a JSON object; set a schema, or omit the option",
            )
        return ColumnFormat(encoding=encoding, schema=render_schema(kind), is_framed=has_registry)

    is_debezium = bool(choice.is_debezium)
    key = column("key", choice.key)
    value = column("value", choice.value, is_debezium=is_debezium)
    if is_debezium and value.encoding not in {Encoding.JSON, Encoding.AVRO, Encoding.PROTOBUF}:
        raise ConfigError("envelope", DEBEZIUM, "needs values in JSON, Avro or Protobuf")
    default = value.is_framed and value.encoding is not Encoding.JSON
    grows = default if choice.grows is None else choice.grows
    return TableRows(
        form=RowFormat(
            key=key,
            value=value,
            has_text_headers=bool(choice.has_text_headers),
            is_debezium=is_debezium,
            looks_for_more=grows and value.encoding is Encoding.JSON,
        ),
        grows=grows,
        partition_by=choice.partition_by or PartitionBy.NONE,
    )


def _column(
    option: str, encoding: Encoding, choice: ColumnChoice, has_registry: bool, *, is_debezium: bool
) -> ColumnFormat:
    match encoding:
        case Encoding.BYTES | Encoding.TEXT:
            return ColumnFormat(encoding=encoding)
        case Encoding.JSON:
            kind = parse_schema(choice.schema or "", option=option)
            return ColumnFormat(
                encoding=encoding, schema=render_schema(kind), is_framed=has_registry
            )
        case _ if has_registry:
            return ColumnFormat(encoding=encoding, message=choice.message, is_framed=True)
        case Encoding.AVRO:
            found = parse_avro(choice.schema or "", option=option).type
            writer = choice.schema
        case _:
            text = choice.schema or ""
            is_compiled = text.startswith(DESCRIPTORS)
            writer = text[len(DESCRIPTORS) :] if is_compiled else compile_proto(text, option=option)
            message = MessageTypes(writer, option=option).named(choice.message)
            found = message_type(message, option=option)
            choice = replace(choice, message=message.full_name)
    kept = (row_type(found) if is_debezium else found) or found
    return ColumnFormat(
        encoding=encoding, schema=render_schema(kept), writer=writer, message=choice.message
    )


def kept_rows(
    table: str, settings: Mapping[str, str], choice: RowChoice, *, widens: bool
) -> TableRows:
    """The rows of a table that exists, with what the command adds. Raises `ConfigError`."""
    kept = TableRows.from_settings(settings)
    form = kept.form
    for name, held, given in (("key", form.key, choice.key), ("value", form.value, choice.value)):
        if given.encoding is not None and given.encoding is not held.encoding:
            raise ConfigError(
                f"{name} format", given.encoding, f"{table} was made with {held.encoding}"
            )
    _check_same(table, "envelope", choice.is_debezium, held=form.is_debezium)
    _check_same(table, "text headers", choice.has_text_headers, held=form.has_text_headers)
    if choice.partition_by is not None and choice.partition_by is not kept.partition_by:
        raise ConfigError(
            "partition by", choice.partition_by, f"{table} is divided by {kept.partition_by}"
        )
    form = replace(
        form,
        key=_grown(table, "key", form.key, choice.key, widens=widens),
        value=_grown(
            table, "value", form.value, choice.value, widens=widens, is_debezium=form.is_debezium
        ),
    )
    grows = kept.grows if choice.grows is None else choice.grows
    looks = grows and form.value.encoding is Encoding.JSON
    return replace(kept, form=replace(form, looks_for_more=looks), grows=grows)


def _check_same(table: str, option: str, given: bool | None, *, held: bool) -> None:
    if given is not None and given != held:
        was = "with it" if held else "without it"
        raise ConfigError(option, given, f"{table} was made {was}")


def _grown(
    table: str,
    name: str,
    held: ColumnFormat,
    given: ColumnChoice,
    *,
    widens: bool,
    is_debezium: bool = False,
) -> ColumnFormat:
    """The column with the fields of a given schema."""
    if given.schema in {None, INFER} or held.is_framed:
        return held
    option = f"{name} schema"
    if held.schema is None:
        raise ConfigError(option, given.schema, f"{table} was made without one")
    found = _column(option, held.encoding, given, False, is_debezium=is_debezium)
    merged = merge_types(parse_schema(held.schema), parse_schema(found.schema or ""), widens=widens)
    wrong = (*merged.contradicted, *merged.refused)
    if wrong:
        raise ConfigError(option, given.schema, f"{table} was made with another one: {wrong[0]}")
    if held.encoding is Encoding.JSON:
        return held.with_type(merged.type)
    return replace(found, schema=render_schema(merged.type))


def opened_evolution(
    rows: TableRows, settings: Mapping[str, str], choice: RowChoice, *, widens: bool
) -> tuple[TableRows, SchemaEvolution]:
    """The rules of change, and the rows with the schemas of all ids that the table has met."""
    registry = None if choice.registry is None else SchemaRegistry(choice.registry)
    evolution = SchemaEvolution(Evolution(grows=rows.grows, widens=widens), registry)
    # Schemas that the table has met do not change it again, whatever the rule is now.
    pinned = SchemaEvolution(Evolution(grows=False, widens=False), registry)
    ids = {name: frozenset(known_ids(name, settings)) for name in ("key", "value")}
    return replace(rows, form=pinned.with_ids(rows.form, ids)), evolution
