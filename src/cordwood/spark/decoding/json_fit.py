# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Which values of a column Arrow's JSON parser will probably take, found in their bytes.

See `format/batch_scan.py` for the rules of kernels.

The answer is a guess that saves time and decides nothing. A value that is said to fit may still be
refused by the parser: then the values are divided further. A value that is said not to fit is
looked at by itself, which gives the same result as the parser would. So rare forms are called
misfits without a closer look: a name with an escape, a field that is there twice, a number with an
exponent that may be too large.

The shape of the values is a table of nodes, one for each field and each item of a list:

word  field
0     kind, see below
1     the first of its children, which follow each other: fields of an object, or the item of a list
2     the number of its children
3     where its name begins in `names`
4     where its name ends
5     limit: of a whole number the largest; of a decimal, digits before the point * 256 + behind it
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # the plain form needs no Cython installed
    from cordwood import plain_cython as cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cordwood.format.json_bytes import after_wide, skip_space  # type: ignore
else:
    from cordwood.format.json_bytes import after_wide, skip_space

COMPILED = cython.compiled

NODE_WORDS = 6
LEVEL_WORDS = 4
DEPTH_MAX = 64

ANY = 0
OBJECT = 1
LIST = 2
TEXT = 3
BOOLEAN = 4
INTEGER = 5
DOUBLE = 6
FLOAT = 7
DECIMAL = 8
DATE = 9
TIME = 10
BASE64 = 11

_NODE = cython.declare(cython.int, 6)
_LEVEL = cython.declare(cython.int, 4)
_LEVELS = cython.declare(cython.int, 64)

_ANY = cython.declare(cython.int, 0)
_OBJECT = cython.declare(cython.int, 1)
_LIST = cython.declare(cython.int, 2)
_TEXT = cython.declare(cython.int, 3)
_BOOLEAN = cython.declare(cython.int, 4)
_INTEGER = cython.declare(cython.int, 5)
_DOUBLE = cython.declare(cython.int, 6)
_FLOAT = cython.declare(cython.int, 7)
_DECIMAL = cython.declare(cython.int, 8)
_DATE = cython.declare(cython.int, 9)
_TIME = cython.declare(cython.int, 10)
_BASE64 = cython.declare(cython.int, 11)

_AT_VALUE = cython.declare(cython.int, 0)
_AT_KEY = cython.declare(cython.int, 1)
_AFTER_VALUE = cython.declare(cython.int, 2)

_FLOAT_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 37)  # a number of so many digits is finite
_DOUBLE_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 300)
_WORD_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 19)  # 64 bits hold every such number


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_digit(byte: cython.uint) -> cython.bint:
    return 48 <= byte <= 57


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _hex_word(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.int:
    """The number that four hexadecimal digits stand for; -1 if they are none."""
    word: cython.int = 0
    stop: cython.Py_ssize_t = at + 4
    byte: cython.int
    if stop > end:
        return -1
    while at < stop:
        byte = data[at]
        if 48 <= byte <= 57:
            byte -= 48
        elif 65 <= byte <= 70:
            byte -= 55
        elif 97 <= byte <= 102:
            byte -= 87
        else:
            return -1
        word = word * 16 + byte
        at += 1
    return word


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _after_escape(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """The position after an escape whose backslash is before `at`; -1 if it is none, or half."""
    byte: cython.uint
    word: cython.int
    if at >= end:
        return -1
    byte = data[at]
    at += 1
    # " \ / b f n r t
    if byte in {34, 92, 47, 98, 102} or byte in {110, 114, 116}:
        return at
    if byte != 117:  # u
        return -1
    word = _hex_word(data, at, end)
    at += 4
    if word < 0 or 0xDC00 <= word <= 0xDFFF:
        return -1
    if 0xD800 <= word <= 0xDBFF:  # the first half of a character
        if at + 6 > end or data[at] != 92 or data[at + 1] != 117:
            return -1
        word = _hex_word(data, at + 2, end)
        if not 0xDC00 <= word <= 0xDFFF:
            return -1
        at += 6
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.bint))
def _after_text(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
):
    """The position after a text that begins at `at`, and whether it has escapes; -1 if damaged."""
    has_escapes: cython.bint = False
    byte: cython.uint
    while at < end:
        byte = data[at]
        if byte >= 0x80:
            at = after_wide(data, at, end)
            if at < 0:
                return -1, has_escapes
            continue
        at += 1
        if byte == 34:
            return at, has_escapes
        if byte == 92:
            has_escapes = True
            at = _after_escape(data, at, end)
            if at < 0:
                return -1, has_escapes
        elif byte < 32:
            return -1, has_escapes
    return -1, has_escapes


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _digits_from(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """The position after the digits that begin at `at`."""
    while at < end and 48 <= data[at] <= 57:
        at += 1
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_within(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    limit: cython.longlong,
    is_negative: cython.bint,
) -> cython.bint:
    """Whether digits are at most `limit`, or one more if there is a minus before them."""
    number: cython.ulonglong = 0
    largest: cython.ulonglong = cython.cast(cython.ulonglong, limit)
    if stop - at > _WORD_DIGITS_MAX:
        return False
    while at < stop:
        number = number * 10 + (data[at] - 48)
        at += 1
    return number <= largest + (1 if is_negative else 0)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _after_number(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    kind: cython.int,
    limit: cython.longlong,
) -> cython.Py_ssize_t:
    """The position after a number that fits the kind; -1 if it does not, or is none."""
    is_negative: cython.bint = data[at] == 45
    start: cython.Py_ssize_t
    whole: cython.Py_ssize_t
    fraction: cython.Py_ssize_t = 0
    exponent: cython.Py_ssize_t = 0
    is_whole: cython.bint = True
    first: cython.Py_ssize_t
    if is_negative:
        at += 1
    start = at
    at = _digits_from(data, at, end)
    whole = at - start
    if whole == 0 or (data[start] == 48 and whole > 1):
        return -1
    if at < end and data[at] == 46:
        first = at + 1
        at = _digits_from(data, first, end)
        fraction = at - first
        is_whole = False
        if fraction == 0:
            return -1
    if at < end and (data[at] == 101 or data[at] == 69):  # e E
        at += 1
        if at < end and (data[at] == 43 or data[at] == 45):
            at += 1
        first = at
        at = _digits_from(data, first, end)
        exponent = at - first
        is_whole = False
        if exponent == 0:
            return -1
    if kind == _ANY:
        return at
    if kind == _INTEGER:
        if is_whole and _is_within(data, start, at, limit, is_negative):
            return at
        return -1
    if kind == _DOUBLE:
        return at if whole <= _DOUBLE_DIGITS_MAX and exponent <= 2 else -1
    if kind == _FLOAT:
        return at if whole <= _FLOAT_DIGITS_MAX and exponent == 0 else -1
    if kind == _DECIMAL:
        return at if exponent == 0 and whole <= limit >> 8 and fraction <= limit & 255 else -1
    return -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _two_digits(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.int:
    """The number that two digits stand for; -1 if they are none. The caller checked the range."""
    if not _is_digit(data[at]) or not _is_digit(data[at + 1]):
        return -1
    return (cython.cast(cython.int, data[at]) - 48) * 10 + data[at + 1] - 48


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_date(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.bint:
    """Whether ten bytes are a date. The caller checked the range."""
    century: cython.int = _two_digits(data, at)
    years: cython.int = _two_digits(data, at + 2)
    month: cython.int = _two_digits(data, at + 5)
    day: cython.int = _two_digits(data, at + 8)
    last: cython.int = 31
    if century < 0 or years < 0 or data[at + 4] != 45 or data[at + 7] != 45:
        return False
    if month in {4, 6, 9, 11}:
        last = 30
    elif month == 2:
        last = 28
        if years % 4 == 0 and (years != 0 or century % 4 == 0):
            last = 29
    return 1 <= month <= 12 and 1 <= day <= last


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_zone(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.bint:
    """Whether the rest of a time is nothing, Z, +hh, +hhmm or +hh:mm."""
    if at == stop:
        return True
    if data[at] == 90:
        return at + 1 == stop
    if (data[at] != 43 and data[at] != 45) or stop - at < 3:
        return False
    if not 0 <= _two_digits(data, at + 1) <= 23:
        return False
    if stop - at == 3:
        return True
    at += 4 if data[at + 3] == 58 else 3
    return stop - at == 2 and 0 <= _two_digits(data, at) <= 59


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_time(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.bint:
    """Whether bytes are a date, and perhaps a time with at most six digits of a second."""
    first: cython.Py_ssize_t
    if stop - at < 10 or not _is_date(data, at):
        return False
    at += 10
    if at == stop:
        return True
    if (data[at] != 84 and data[at] != 32) or stop - at < 6:  # T12:30
        return False
    if not 0 <= _two_digits(data, at + 1) <= 23 or data[at + 3] != 58:
        return False
    if not 0 <= _two_digits(data, at + 4) <= 59:
        return False
    at += 6
    if stop - at >= 3 and data[at] == 58:
        if not 0 <= _two_digits(data, at + 1) <= 59:
            return False
        at += 3
        if at < stop and data[at] == 46:
            first = at + 1
            at = _digits_from(data, first, stop)
            if not 1 <= at - first <= 6:
                return False
    return _is_zone(data, at, stop)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_base64(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.bint:
    byte: cython.uint
    if (stop - at) % 4:
        return False
    if stop > at and data[stop - 1] == 61:
        stop -= 2 if data[stop - 2] == 61 else 1
    while at < stop:
        byte = data[at]
        if not (65 <= byte <= 90 or 97 <= byte <= 122 or 47 <= byte <= 57 or byte == 43):
            return False
        at += 1
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_decimal_text(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    limit: cython.longlong,
) -> cython.bint:
    if at == stop or not (data[at] == 45 or _is_digit(data[at])):
        return False
    return _after_number(data, at, stop, _DECIMAL, limit) == stop


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _after_scalar(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    kind: cython.int,
    limit: cython.longlong,
) -> cython.Py_ssize_t:
    """The position after a text, a number or a word that fits the kind; -1 if it does not."""
    byte: cython.uint = data[at]
    start: cython.Py_ssize_t = at + 1
    has_escapes: cython.bint
    is_fit: cython.bint
    if byte == 34:
        at, has_escapes = _after_text(data, start, end)
        if at < 0:
            return -1
        if kind in {_ANY, _TEXT}:
            return at
        is_fit = False
        if has_escapes:
            return -1
        if kind == _DATE:
            is_fit = at - 1 - start == 10 and _is_date(data, start)
        elif kind == _TIME:
            is_fit = _is_time(data, start, at - 1)
        elif kind == _BASE64:
            is_fit = _is_base64(data, start, at - 1)
        elif kind == _DECIMAL:
            is_fit = _is_decimal_text(data, start, at - 1, limit)
        return at if is_fit else -1
    if byte == 45 or 48 <= byte <= 57:
        return _after_number(data, at, end, kind, limit)
    if at + 4 > end:
        return -1
    if byte == 110 and data[at + 1] == 117 and data[at + 2] == 108 and data[at + 3] == 108:
        return at + 4
    if kind not in {_ANY, _BOOLEAN}:
        return -1
    if byte == 116 and data[at + 1] == 114 and data[at + 2] == 117 and data[at + 3] == 101:
        return at + 4
    if at + 5 > end or byte != 102 or data[at + 1] != 97:
        return -1
    if data[at + 2] == 108 and data[at + 3] == 115 and data[at + 4] == 101:
        return at + 5
    return -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _has_name(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    nodes: cython.const[cython.longlong][::1],
    names: cython.const[cython.uchar][::1],
    node: cython.longlong,
) -> cython.bint:
    first: cython.longlong = nodes[node * _NODE + 3]
    if stop - start != nodes[node * _NODE + 4] - first:
        return False
    while start < stop:
        if data[start] != names[first]:
            return False
        start += 1
        first += 1
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _child(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    nodes: cython.const[cython.longlong][::1],
    names: cython.const[cython.uchar][::1],
    parent: cython.longlong,
    likely: cython.longlong,
) -> cython.longlong:
    """The child with this name, -1 if there is none. `likely` is the first to be looked at."""
    first: cython.longlong = nodes[parent * _NODE + 1]
    last: cython.longlong = first + nodes[parent * _NODE + 2]
    node: cython.longlong = likely
    while node < last:
        if _has_name(data, start, stop, nodes, names, node):
            return node
        node += 1
    node = first
    while node < likely:
        if _has_name(data, start, stop, nodes, names, node):
            return node
        node += 1
    return -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _fits(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    nodes: cython.const[cython.longlong][::1],
    names: cython.const[cython.uchar][::1],
    seen: cython.longlong[::1],
    levels: cython.longlong[::1],
) -> cython.bint:
    """The answer for the value ``data[at:end]``; the caller has checked the range.

    `levels` has four words for each open bracket: the node of the object or of the list's items, or
    -1 if the shape does not have it; whether it is a list; a number that no other object has; the
    field that is likely next. `seen` has for each node the number of the object that had it last,
    and behind them the last such number.
    """
    numbers: cython.Py_ssize_t = len(seen) - 1
    node: cython.longlong = 0  # of the next value
    depth: cython.Py_ssize_t = 0
    level: cython.Py_ssize_t
    start: cython.Py_ssize_t
    state: cython.int = _AT_VALUE
    kind: cython.int
    limit: cython.longlong
    has_escapes: cython.bint
    byte: cython.uint
    at = skip_space(data, at, end)
    if at >= end or data[at] != 123:
        return False
    while True:
        at = skip_space(data, at, end)
        if depth == 0 and state == _AFTER_VALUE:
            return at == end
        if at >= end:
            return False
        byte = data[at]
        level = _LEVEL * (depth - 1)
        if state == _AFTER_VALUE:
            at += 1
            if byte == 44:
                node = levels[level]
                state = _AT_VALUE if levels[level + 1] else _AT_KEY
            elif byte == (93 if levels[level + 1] else 125):
                depth -= 1
            else:
                return False
        elif state == _AT_KEY:
            if byte != 34:
                return False
            start = at + 1
            at, has_escapes = _after_text(data, start, end)
            if at < 0:
                return False
            node = levels[level]
            if node >= 0:
                if has_escapes:
                    return False
                node = _child(data, start, at - 1, nodes, names, node, levels[level + 3])
                if node >= 0:
                    if seen[node] == levels[level + 2]:
                        return False
                    seen[node] = levels[level + 2]
                    levels[level + 3] = node + 1
            at = skip_space(data, at, end)
            if at >= end or data[at] != 58:
                return False
            at += 1
            state = _AT_VALUE
        else:
            kind = cython.cast(cython.int, nodes[node * _NODE]) if node >= 0 else _ANY
            limit = nodes[node * _NODE + 5] if node >= 0 else 0
            if byte not in {123, 91}:
                at = _after_scalar(data, at, end, kind, limit)
                if at < 0:
                    return False
                state = _AFTER_VALUE
                continue
            if depth >= _LEVELS:
                return False
            if byte == 123:
                if kind not in {_ANY, _OBJECT}:
                    return False
            elif kind not in {_ANY, _LIST}:
                return False
            level = _LEVEL * depth
            seen[numbers] += 1
            if node >= 0 and kind != _ANY:
                levels[level] = node if byte == 123 else nodes[node * _NODE + 1]
                levels[level + 3] = nodes[node * _NODE + 1]
            else:
                levels[level] = -1
            levels[level + 1] = 1 if byte == 91 else 0
            levels[level + 2] = seen[numbers]
            node = levels[level]
            at = skip_space(data, at + 1, end)
            if at < end and data[at] == (93 if byte == 91 else 125):
                at += 1
                state = _AFTER_VALUE
            else:
                depth += 1
                state = _AT_VALUE if byte == 91 else _AT_KEY


def mark_fitting(
    offsets: cython.const[cython.int][::1],
    data: cython.const[cython.uchar][::1],
    shape: object,
    levels: cython.longlong[::1],
    fits: cython.uchar[::1],
) -> None:
    """Write 1 for each row that probably fits, 0 for the others.

    Row n is ``data[offsets[n]:offsets[n + 1]]``. `shape` is a `JsonShape`. `levels` has room for
    `DEPTH_MAX` times `LEVEL_WORDS`.
    """
    nodes: cython.const[cython.longlong][::1] = shape.nodes
    names: cython.const[cython.uchar][::1] = shape.names
    seen: cython.longlong[::1] = shape.seen
    count: cython.Py_ssize_t = len(fits)
    node_count: cython.Py_ssize_t = len(nodes) // _NODE
    data_size: cython.Py_ssize_t = len(data)
    row: cython.Py_ssize_t
    start: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    first: cython.longlong
    is_sound: cython.bint = node_count > 0 and nodes[0] == _OBJECT
    for row in range(node_count):
        first = nodes[row * _NODE + 1]
        start = nodes[row * _NODE + 3]
        stop = nodes[row * _NODE + 4]
        is_sound = is_sound and 0 <= start <= stop <= len(names)
        if nodes[row * _NODE + 2] > 0:
            is_sound = is_sound and 0 < first <= node_count - nodes[row * _NODE + 2]
        else:
            is_sound = is_sound and nodes[row * _NODE] != _LIST and 0 <= first <= node_count
    if not is_sound or len(seen) != node_count + 1 or len(levels) < _LEVELS * _LEVEL:
        raise IndexError("nodes, names or levels outside their buffers")
    if len(offsets) < count + 1:
        raise IndexError("rows outside their column")
    with cython.nogil:
        for row in range(count):
            start = offsets[row]
            stop = offsets[row + 1]
            if start < 0 or stop < start or stop > data_size:
                is_sound = False
                break
            fits[row] = 1 if _fits(data, start, stop, nodes, names, seen, levels) else 0
    if not is_sound:
        raise IndexError("a row lies outside its column")
