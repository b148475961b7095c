"""Any message there can be, as the mapping `encode_request` and `encode_response` take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

from cordwood.protocol.api_catalog import KNOWN_APIS, Api
from cordwood.protocol.message_schema import FieldSchema
from cordwood.protocol.schemas import MESSAGE_SCHEMAS

# Every API that is not read by hand.
APIS: Final = [api for api in KNOWN_APIS.values() if api.key in MESSAGE_SCHEMAS]

_PRIMITIVES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=12),
    "bytes": st.binary(max_size=12),
    "uuid": st.uuids(),
}
# The other implementations know error codes as names, and no name for most numbers.
_ERROR_CODES: Final = st.integers(-1, 93)
# kio keeps a duration in microseconds.
_LONG_DURATIONS: Final = st.integers(-(2**40), 2**40)

# kio keeps a moment as a date, with whole seconds between 1970 and 2100.
_MOMENTS: Final = st.integers(0, 4_000_000_000).map(lambda seconds: seconds * 1000)


# Hypothesis examines a strategy when it is first used, which takes longer than an example. By the
# identity of the fields, which are kept here too: so nothing else gets their identity.
_MESSAGES: Final[
    dict[tuple[int, int], tuple[Sequence[FieldSchema], st.SearchStrategy[dict[str, Any]]]]
] = {}


def messages(fields: Sequence[FieldSchema], version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings with every field that the version has. `fields` are those of a schema."""
    known = _MESSAGES.get((id(fields), version))
    if known is None:
        strategy = st.fixed_dictionaries(
            {field.name: _values(field, version) for field in fields if version in field.versions}
        )
        known = _MESSAGES[id(fields), version] = (fields, strategy)
    return known[1]


def _values(field: FieldSchema, version: int) -> st.SearchStrategy[Any]:
    if field.name.endswith("error_code"):
        value: st.SearchStrategy[Any] = _ERROR_CODES
    elif field.name in {"retention_time", "session_lifetime", "duration_filter"}:
        value = _LONG_DURATIONS
    elif field.name == "transaction_start_time":
        value = _MOMENTS
    else:
        value = _PRIMITIVES[field.type] if field.type else messages(field.fields, version)
    if field.is_array:
        value = st.lists(value, max_size=3)
    if version in field.nullable_versions:
        value = st.none() | value
    return value


def versions(api: Api) -> st.SearchStrategy[int]:
    return st.integers(api.min_version, api.max_version)
