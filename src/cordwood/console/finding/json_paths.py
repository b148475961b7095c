# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Which values have a wanted field, found in the bytes of JSON without building its objects.

See `format/batch_scan.py` for the rules of kernels.

A value gets one of three answers. `NO` and `YES` are what `has_at_path` says, which parses the
value. `MAYBE` means that it must be asked: the bytes have something that is rare and has many
forms, such as an escape in the wanted field, an exponent, a field that is there twice, or an error.
So this code need not know all of JSON, but what it knows must be right:

    NO    if the value is JSON, the field is not there, or does not compare
    YES   the value is JSON, byte by byte, and the field compares
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

NO = 0
MAYBE = 1
YES = 2

DEPTH_MAX = 64

_NO = cython.declare(cython.int, 0)
_MAYBE = cython.declare(cython.int, 1)
_YES = cython.declare(cython.int, 2)

# `Operator` in json_fields.py
_EQUAL = cython.declare(cython.int, 0)
_NOT_EQUAL = cython.declare(cython.int, 1)
_LESS = cython.declare(cython.int, 2)
_NOT_GREATER = cython.declare(cython.int, 3)
_GREATER = cython.declare(cython.int, 4)
_NOT_LESS = cython.declare(cython.int, 5)
_CONTAINS = cython.declare(cython.int, 6)

# `Kind` in json_fields.py; 0 is a text
_NUMBER = cython.declare(cython.int, 1)
_WIDE_NUMBER = cython.declare(cython.int, 2)
_TRUE = cython.declare(cython.int, 3)
_FALSE = cython.declare(cython.int, 4)
_NULL = cython.declare(cython.int, 5)

_AT_VALUE = cython.declare(cython.int, 0)
_AT_KEY = cython.declare(cython.int, 1)
_AFTER_VALUE = cython.declare(cython.int, 2)

_LEVELS = cython.declare(cython.int, 64)
_EXACT_MAX = cython.declare(cython.longlong, 1 << 53)  # a double holds every whole number to here
_DIGITS_MAX = cython.declare(cython.int, 22)  # a double holds these powers of ten


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _after_escape(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """The position after an escape whose backslash is before `at`; -1 if it is none."""
    byte: cython.uint
    stop: cython.Py_ssize_t
    if at >= end:
        return -1
    byte = data[at]
    at += 1
    # " \ / b f n r t
    if byte in {34, 92, 47, 98, 102}:
        return at
    if byte in {110, 114, 116}:
        return at
    if byte != 117 or at + 4 > end:  # u
        return -1
    stop = at + 4
    while at < stop:
        byte = data[at]
        if not (48 <= byte <= 57 or 65 <= byte <= 70 or 97 <= byte <= 102):
            return -1
        at += 1
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t))
def _after_text(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
):
    """The position after a text that begins at `at`, its escapes, and its opening brackets.

    The position is -1 if the text is not sound.
    """
    escapes: cython.Py_ssize_t = 0
    openings: cython.Py_ssize_t = 0
    byte: cython.uint
    while at < end:
        byte = data[at]
        if byte >= 0x80:
            at = after_wide(data, at, end)
            if at < 0:
                return -1, escapes, openings
            continue
        at += 1
        if byte == 34:
            return at, escapes, openings
        if byte == 92:
            escapes += 1
            at = _after_escape(data, at, end)
            if at < 0:
                return -1, escapes, openings
        elif byte in {91, 123}:
            openings += 1
        elif byte < 32:
            return -1, escapes, openings
    return -1, escapes, openings


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.longlong, cython.int))
def _after_number(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
):
    """The position after a number, its digits as a whole number, and how many are a fraction.

    The position is -1 if it is no number; the last is -1 if a double may not hold the digits.
    """
    is_negative: cython.bint = data[at] == 45
    digits: cython.longlong = 0
    fraction: cython.int = 0
    start: cython.Py_ssize_t
    is_exact: cython.bint = True
    if is_negative:
        at += 1
    start = at
    while at < end and 48 <= data[at] <= 57:
        if digits < _EXACT_MAX:
            digits = digits * 10 + (data[at] - 48)
        at += 1
    if at == start or (data[start] == 48 and at > start + 1):
        return -1, 0, -1
    if at < end and data[at] == 46:
        at += 1
        start = at
        while at < end and 48 <= data[at] <= 57:
            if digits < _EXACT_MAX:
                digits = digits * 10 + (data[at] - 48)
            fraction += 1
            at += 1
        if at == start:
            return -1, 0, -1
    if at < end and (data[at] == 101 or data[at] == 69):  # e E
        is_exact = False
        at += 1
        if at < end and (data[at] == 43 or data[at] == 45):
            at += 1
        start = at
        while at < end and 48 <= data[at] <= 57:
            at += 1
        if at == start:
            return -1, 0, -1
    if not is_exact or digits >= _EXACT_MAX or fraction > _DIGITS_MAX:
        return at, 0, -1
    return at, -digits if is_negative else digits, fraction


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.int))
def _after_word(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
):
    """The position after true, false or null, and which it is; -1 if it is none of them."""
    if at + 4 > end:
        return -1, 0
    if data[at] == 116 and data[at + 1] == 114 and data[at + 2] == 117 and data[at + 3] == 101:
        return at + 4, _TRUE
    if data[at] == 110 and data[at + 1] == 117 and data[at + 2] == 108 and data[at + 3] == 108:
        return at + 4, _NULL
    if at + 5 > end or data[at] != 102 or data[at + 1] != 97:
        return -1, 0
    if data[at + 2] == 108 and data[at + 3] == 115 and data[at + 4] == 101:
        return at + 5, _FALSE
    return -1, 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_in_order(order: cython.int, operator: cython.int) -> cython.bint:
    """Whether an operator holds; `order` is negative, zero or positive."""
    if operator == _EQUAL:
        return order == 0
    if operator == _NOT_EQUAL:
        return order != 0
    if operator == _LESS:
        return order < 0
    if operator == _NOT_GREATER:
        return order <= 0
    if operator == _GREATER:
        return order > 0
    return operator == _NOT_LESS and order >= 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _text_compares(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    text: cython.const[cython.uchar][::1],
    operator: cython.int,
) -> cython.bint:
    """UTF-8 has the order of its characters, so bytes are compared."""
    size: cython.Py_ssize_t = len(text)
    at: cython.Py_ssize_t
    order: cython.int = 0
    if operator == _CONTAINS:
        while start + size <= stop:
            at = 0
            while at < size and data[start + at] == text[at]:
                at += 1
            if at == size:
                return True
            start += 1
        return False
    if operator == _EQUAL and stop - start != size:
        return False
    at = 0
    while at < size and start + at < stop and order == 0:
        order = cython.cast(cython.int, data[start + at]) - cython.cast(cython.int, text[at])
        at += 1
    if order == 0:
        order = -1 if stop - start < size else 1 if stop - start > size else 0
    return _is_in_order(order, operator)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _number_compares(
    digits: cython.longlong, fraction: cython.int, literal: cython.double, operator: cython.int
) -> cython.bint:
    """Digits and power are exact as doubles, so their quotient is the number that JSON has."""
    number: cython.double = cython.cast(cython.double, digits)
    power: cython.double = 1.0
    while fraction > 0:
        power = power * 10.0
        fraction -= 1
    number = number / power
    if number < literal:
        return _is_in_order(-1, operator)
    if number > literal:
        return _is_in_order(1, operator)
    if number == literal:
        return _is_in_order(0, operator)
    return operator == _NOT_EQUAL  # the literal is not a number


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_name(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    names: cython.const[cython.uchar][::1],
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
) -> cython.bint:
    if stop - start != last - first:
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
@cython.returns((cython.Py_ssize_t, cython.int, cython.Py_ssize_t))
def _after_scalar(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    is_wanted: cython.bint,
    operator: cython.int,
    kind: cython.int,
    number: cython.double,
    text: cython.const[cython.uchar][::1],
):
    """The position after a text, a number or a word; whether it compares; its opening brackets.

    The position is -1 if it is none of them, or not sound.
    """
    byte: cython.uint = data[at]
    start: cython.Py_ssize_t = at + 1
    escapes: cython.Py_ssize_t
    openings: cython.Py_ssize_t
    digits: cython.longlong
    fraction: cython.int
    word: cython.int
    compares: cython.int
    if byte == 34:
        at, escapes, openings = _after_text(data, start, end)
        compares = _NO
        if at >= 0 and is_wanted:
            if escapes:
                compares = _MAYBE
            elif _text_compares(data, start, at - 1, text, operator):
                compares = _YES
        return at, compares, openings
    if byte == 45 or 48 <= byte <= 57:
        at, digits, fraction = _after_number(data, at, end)
        compares = _NO
        if is_wanted:
            if fraction < 0 or (kind == _WIDE_NUMBER and operator != _CONTAINS):
                compares = _MAYBE  # also because a number of very many digits counts as a text
            elif kind == _NUMBER:
                if _number_compares(digits, fraction, number, operator):
                    compares = _YES
            elif operator == _NOT_EQUAL:
                compares = _YES
        return at, compares, 0
    at, word = _after_word(data, at, end)
    compares = _NO
    if is_wanted and (
        (operator == _EQUAL and word == kind) or (operator == _NOT_EQUAL and word != kind)
    ):
        compares = _YES
    return at, compares, 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _answer(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    names: cython.const[cython.uchar][::1],
    name_ends: cython.const[cython.int][::1],
    operator: cython.int,
    kind: cython.int,
    number: cython.double,
    text: cython.const[cython.uchar][::1],
    levels: cython.int[::1],
) -> cython.int:
    """The answer for the value ``data[at:end]``; the caller has checked the range.

    `levels` has an item for each open bracket: four times the number of names that lead to it, plus
    one, or nothing if it is not on the path; plus two if its name was seen; plus one for a list.
    """
    count: cython.Py_ssize_t = len(name_ends)
    names_met: cython.Py_ssize_t = 0  # that lead to the next value; -1: it is not on the path
    depth: cython.Py_ssize_t = 0
    openings: cython.Py_ssize_t = 0
    more: cython.Py_ssize_t
    escapes: cython.Py_ssize_t
    state: cython.int = _AT_VALUE
    found: cython.int = _NO
    compares: cython.int
    level: cython.int
    byte: cython.uint
    start: cython.Py_ssize_t
    first: cython.Py_ssize_t
    last: cython.Py_ssize_t
    at = skip_space(data, at, end)
    if at == end:
        return _NO
    if data[at] != 123 and data[at] != 91:
        # Without brackets nothing has names. Other bytes may be the mark of another encoding.
        return _NO if 33 <= data[at] <= 126 else _MAYBE
    while True:
        at = skip_space(data, at, end)
        if depth == 0 and state == _AFTER_VALUE:
            return _MAYBE if at != end or (found == _YES and openings > _LEVELS) else found
        if at >= end:
            return _MAYBE
        byte = data[at]
        if state == _AFTER_VALUE:
            level = levels[depth - 1]
            at += 1
            if byte == 44:
                names_met = (level >> 2) - 1
                state = _AT_VALUE if level & 1 else _AT_KEY
            elif byte == (93 if level & 1 else 125):
                depth -= 1
            else:
                return _MAYBE
        elif state == _AT_KEY:
            if byte != 34:
                return _MAYBE
            start = at + 1
            at, escapes, more = _after_text(data, start, end)
            if at < 0:
                return _MAYBE
            openings += more
            level = levels[depth - 1]
            names_met = (level >> 2) - 1
            if names_met >= 0:
                if escapes:
                    return _MAYBE
                first = name_ends[names_met - 1] if names_met > 0 else 0
                last = name_ends[names_met]
                if _is_name(data, start, at - 1, names, first, last):
                    if level & 2:
                        return _MAYBE  # the last one counts
                    levels[depth - 1] = level | 2
                    names_met += 1
                else:
                    names_met = -1
            at = skip_space(data, at, end)
            if at >= end or data[at] != 58:
                return _MAYBE
            at += 1
            state = _AT_VALUE
        elif byte in {91, 123}:
            if depth >= _LEVELS:
                return _MAYBE
            if depth > 0 and levels[depth - 1] & 1 and byte == 91:
                names_met = -1  # a list in a list is not looked into
            if names_met == count:
                if operator == _NOT_EQUAL:
                    found = _YES
                names_met = -1
            level = 0
            if names_met >= 0:
                first = name_ends[names_met - 1] if names_met > 0 else 0
                if byte == 91 and 48 <= names[first] <= 57:
                    return _MAYBE  # it may be the number of an item
                level = cython.cast(cython.int, (names_met + 1) << 2)
            levels[depth] = level | (1 if byte == 91 else 0)
            depth += 1
            openings += 1
            at = skip_space(data, at + 1, end)
            if at < end and data[at] == (93 if byte == 91 else 125):
                at += 1
                depth -= 1
                state = _AFTER_VALUE
            else:
                state = _AT_VALUE if byte == 91 else _AT_KEY
        else:
            at, compares, more = _after_scalar(
                data, at, end, names_met == count, operator, kind, number, text
            )
            if at < 0:
                return _MAYBE
            openings += more
            found = max(found, compares)
            state = _AFTER_VALUE


def answer_rows(
    spans: cython.const[cython.longlong][::1],
    data: cython.const[cython.uchar][::1],
    condition: object,
    bytes_max: cython.longlong,
    levels: cython.int[::1],
    answers: cython.uchar[::1],
) -> None:
    """Replace each answer that is not `NO` by the answer for that row.

    `spans` says where each row lies in `data`, as `column_kernels.spans` writes it. `condition` is
    a `PathCondition`. A null is a `NO`, and so is a row of more than `bytes_max` bytes. `levels`
    has room for `DEPTH_MAX` items.
    """
    names: cython.const[cython.uchar][::1] = condition.names
    name_ends: cython.const[cython.int][::1] = condition.name_ends
    operator: cython.int = condition.operator
    kind: cython.int = condition.kind
    number: cython.double = condition.number
    text: cython.const[cython.uchar][::1] = condition.text
    count: cython.Py_ssize_t = len(answers)
    data_size: cython.longlong = len(data)
    row: cython.Py_ssize_t
    before: cython.int = 0
    start: cython.longlong
    size: cython.longlong
    is_sound: cython.bint = len(name_ends) > 0
    for row in range(len(name_ends)):
        is_sound = is_sound and before < name_ends[row] <= len(names)
        before = name_ends[row]
    if not is_sound or 2 * count > len(spans) or len(levels) < _LEVELS:
        raise IndexError("names, rows or levels outside their buffers")
    with cython.nogil:
        for row in range(count):
            if answers[row] == 0:
                continue
            start = spans[2 * row]
            size = spans[2 * row + 1]
            if size < 0 or size > bytes_max:
                answers[row] = 0
                continue
            if start < 0 or size > data_size - start:
                is_sound = False
                break
            answers[row] = cython.cast(
                cython.uchar,
                _answer(
                    data,
                    start,
                    start + size,
                    names,
                    name_ends,
                    operator,
                    kind,
                    number,
                    text,
                    levels,
                ),
            )
    if not is_sound:
        raise IndexError("a row lies outside its column")
