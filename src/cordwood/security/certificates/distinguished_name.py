"""Names in certificates as text, exactly as Java prints them: RFC 2253, the form of Kafka's rules.

The most specific part comes first. The nine types of the RFC have names; every other type is
written as its number, with the value as hexadecimal DER. Pure.
"""

from typing import Final

from cordwood.errors import FormatError
from cordwood.security.certificates.der import DerValue, dotted_oid, values_in

_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java takes the bytes
# of all of them as UTF-8, and so do we: a rule written for Kafka must match here.
_TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
_ESCAPED: Final = str.maketrans(
    {character: f"\\{character}" for character in ',=+<>#;"\\'} | {"\0": "\\00"}
)
_SPACES: Final = " \r"


def render_name(content: bytes) -> str:
    """A distinguished name, from the content of its DER sequence. Raises `FormatError`."""
    parts = [
        "+".join(_attribute(value) for value in values_in(part.content))
        for part in values_in(content)
    ]
    return ",".join(reversed(parts))


def _attribute(pair: DerValue) -> str:
    found = list(values_in(pair.content))
    if len(found) != 2:
        raise FormatError("attribute of a name without type and value")
    kind, value = dotted_oid(found[0].content), found[1]
    name = _NAMES.get(kind)
    if name is None or value.tag not in _TEXT_TAGS:
        return f"{name or kind}=#{value.encoded.hex()}"
    return f"{name}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    inner = text.strip(_SPACES)
    if not inner:
        return "".join(f"\\{space}" for space in text)
    lead = text[: text.index(inner)]
    trail = text[len(lead) + len(inner) :]
    spaces = ["".join(f"\\{space}" for space in end) for end in (lead, trail)]
    return spaces[0] + inner.translate(_ESCAPED) + spaces[1]
