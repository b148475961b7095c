"""The messages of SCRAM (RFC 5802), without channel binding.

    client-first   n,[a=authzid],n=user,r=nonce[,name=value...]
    server-first   r=nonce and ours,s=salt in base64,i=iterations
    client-final   c=base64 of "n,[a=authzid],",r=nonce and ours[,name=value...],p=proof in base64
    server-final   v=signature in base64

A comma in a name is written ``=2C``, an equals sign ``=3D``.
"""

import binascii
import re
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

from cordwood.errors import FormatError, LimitExceededError

MESSAGE_BYTES_MAX: Final = 8 * 1024
NAME_CHARACTERS_MAX: Final = 1024
_NONCE_CHARACTERS_MAX: Final = 1024

_EXTENSION: Final = re.compile(r"([A-Za-z]+)=([^,\x00]+)")
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_ESCAPED: Final = re.compile(r"(?:[^=,\x00]|=2C|=3D)+")


class ClientFirst(NamedTuple):
    """What the client claims. `header` and `bare` are the parts of the message, as they came."""

    header: str
    bare: str
    user: str
    authorization_id: str | None
    nonce: str
    extensions: dict[str, str]


class ClientFinal(NamedTuple):
    """The client's proof. `without_proof` is the message as it came, up to the proof."""

    without_proof: str
    binding: bytes
    nonce: str
    proof: bytes


def parse_client_first(message: bytes) -> ClientFirst:
    """Raises `FormatError`."""
    parts = _text(message).split(",")
    if len(parts) < 4 or parts[0] != "n":
        raise FormatError("a client-first message without channel binding must begin with 'n,'")
    header = f"{parts[0]},{parts[1]},"
    return ClientFirst(
        header=header,
        bare=",".join(parts[2:]),
        user=parse_name(_value("n", parts[2])),
        authorization_id=parse_name(_value("a", parts[1])) if parts[1] else None,
        nonce=_nonce(parts[3]),
        extensions=_extensions(parts[4:]),
    )


def parse_client_final(message: bytes) -> ClientFinal:
    """Raises `FormatError`."""
    text = _text(message)
    without_proof, comma, proof = text.rpartition(",")
    parts = without_proof.split(",")
    if not comma or len(parts) < 2:
        raise FormatError("a client-final message must have c=, r= and p=")
    _extensions(parts[2:])
    return ClientFinal(
        without_proof=without_proof,
        binding=_base64(_value("c", parts[0])),
        nonce=_nonce(parts[1]),
        proof=_base64(_value("p", proof)),
    )


def render_server_first(nonce: str, salt: bytes, iterations: int) -> str:
    return f"r={nonce},s={b64encode(salt).decode()},i={iterations}"


def render_server_final(signature: bytes) -> bytes:
    return b"v=" + b64encode(signature)


def parse_name(text: str) -> str:
    """A name without its escapes. Raises `FormatError`."""
    if len(text) > NAME_CHARACTERS_MAX:
        raise LimitExceededError("user name", size=len(text), limit=NAME_CHARACTERS_MAX)
    if _ESCAPED.fullmatch(text) is None:
        raise FormatError("a name is empty, or has an equals sign that is not =2C or =3D")
    return text.replace("=2C", ",").replace("=3D", "=")


def render_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise LimitExceededError("SCRAM message", size=len(message), limit=MESSAGE_BYTES_MAX)
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise FormatError("a SCRAM message is not UTF-8") from error


def _value(name: str, part: str) -> str:
    if not part.startswith(name + "="):
        raise FormatError(f"a SCRAM message lacks {name}= where it must be")
    return part[2:]


def _nonce(part: str) -> str:
    nonce = _value("r", part)
    if len(nonce) > _NONCE_CHARACTERS_MAX:
        raise LimitExceededError("nonce", size=len(nonce), limit=_NONCE_CHARACTERS_MAX)
    if _NONCE.fullmatch(nonce) is None:
        raise FormatError("a nonce must be printable ASCII")
    return nonce


def _extensions(parts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts:
        match = _EXTENSION.fullmatch(part)
        if match is None or match[1] in found or match[1] == "m":
            raise FormatError("an extension must be name=value, once, and not mandatory (m=)")
        found[match[1]] = match[2]
    return found


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError("a value is not base64") from error
