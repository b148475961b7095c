"""The option `key`: read only the records of one key, with the key index if there is one."""

import base64
import binascii
from typing import Final

from cordwood.errors import ConfigError
from cordwood.format import record_table
from cordwood.format.batch import RecordRun

_ENCODINGS: Final = ("utf-8", "hex", "base64")


def parse_key(text: str | None, encoding: str | None) -> bytes | None:
    """The key that the options name, as bytes; None for every key."""
    name = "utf-8" if encoding is None else encoding.strip().lower()
    if name not in _ENCODINGS:
        raise ConfigError("keyEncoding", encoding, f"must be one of {', '.join(_ENCODINGS)}")
    if text is None:
        if encoding is not None:
            raise ConfigError("keyEncoding", encoding, "has no effect without the option key")
        return None
    try:
        match name:
            case "hex":
                return bytes.fromhex(text)
            case "base64":
                return base64.b64decode(text, validate=True)
            case _:
                return text.encode()
    except (ValueError, binascii.Error) as error:
        raise ConfigError("key", text, f"must be {name}: {error}") from error


def rows_of_key(run: RecordRun, key: bytes) -> RecordRun | None:
    """The records of `run` with that key, in order; None if there are none."""
    if record_table.find_key(run.data, run.table, run.start, run.end, key) < 0:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    from cordwood.format.arrow_columns import key_column
    from cordwood.spark.where.chosen_rows import taken_rows

    matches = pc.equal(key_column(run), pa.scalar(key, pa.binary()))
    return taken_rows(run, pc.indices_nonzero(matches))
