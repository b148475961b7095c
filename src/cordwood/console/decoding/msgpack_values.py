"""MessagePack, read within limits: depth, number of items, and no size believed before it is there.

Every length is compared with what is left of the input, so a short message cannot claim much
memory.
"""

import struct
from typing import Final

from cordwood.console.decoding.decoded import DEPTH_MAX, ITEMS_MAX, UndecodableError

_SIZED: Final = {
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
    0xCA: ">f",
    0xCB: ">d",
}
_TEXTS: Final = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_BINARIES: Final = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I"}
_ARRAYS: Final = {0xDC: ">H", 0xDD: ">I"}
_MAPS: Final = {0xDE: ">H", 0xDF: ">I"}
_EXTENSIONS: Final = {0xC7: ">B", 0xC8: ">H", 0xC9: ">I"}
_FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


def decode_msgpack(data: bytes) -> object:
    """The one value in `data`. Raises `UndecodableError` if there is anything else."""
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise UndecodableError(f"{len(data) - reader.at} bytes follow the MessagePack value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._items = 0
        self.at = 0

    def _take(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise UndecodableError("MessagePack ends in the middle of a value")
        taken = self._data[self.at : self.at + count]
        self.at += count
        return taken

    def _number(self, form: str) -> int:
        (number,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(number)

    def value(self, depth: int) -> object:
        self._items += 1
        if depth > DEPTH_MAX or self._items > ITEMS_MAX:
            raise UndecodableError("MessagePack has too many or too deep values")
        kind = self._take(1)[0]
        if kind <= 0x7F:
            return kind
        if kind >= 0xE0:
            return kind - 256
        if kind <= 0x8F:
            return self._map(kind & 0x0F, depth)
        if kind <= 0x9F:
            return self._array(kind & 0x0F, depth)
        if kind <= 0xBF:
            return self._text(kind & 0x1F)
        return self._marked(kind, depth)

    def _marked(self, kind: int, depth: int) -> object:
        if kind in _SIZED:
            (number,) = struct.unpack(_SIZED[kind], self._take(struct.calcsize(_SIZED[kind])))
            return number
        if kind in _TEXTS:
            return self._text(self._number(_TEXTS[kind]))
        if kind in _BINARIES:
            return self._take(self._number(_BINARIES[kind])).hex()
        if kind in _ARRAYS:
            return self._array(self._number(_ARRAYS[kind]), depth)
        if kind in _MAPS:
            return self._map(self._number(_MAPS[kind]), depth)
        if kind in _FIXED_EXTENSIONS:
            return self._extension(_FIXED_EXTENSIONS[kind])
        if kind in _EXTENSIONS:
            return self._extension(self._number(_EXTENSIONS[kind]))
        if kind == 0xC1:
            raise UndecodableError("0xc1 is not a MessagePack value")
        return {0xC0: None, 0xC2: False, 0xC3: True}[kind]

    def _text(self, size: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise UndecodableError(f"a MessagePack text is not UTF-8: {error}") from None

    def _array(self, count: int, depth: int) -> list[object]:
        self._check_count(count)
        return [self.value(depth + 1) for _ in range(count)]

    def _map(self, count: int, depth: int) -> dict[str, object]:
        self._check_count(2 * count)
        found: dict[str, object] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            found[key if isinstance(key, str) else repr(key)] = self.value(depth + 1)
        return found

    def _extension(self, size: int) -> dict[str, object]:
        kind = self._number(">b")
        return {"extension": kind, "hex": self._take(size).hex()}

    def _check_count(self, count: int) -> None:
        if count > len(self._data) - self.at:
            raise UndecodableError("MessagePack claims more items than it has bytes")
