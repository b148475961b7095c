"""Credentials of users: made from passwords, checked, and invented for users that do not exist.

Names and passwords are used as they are, in UTF-8. Clients in Java do not normalise them
(SASLprep, RFC 4013), so a broker that did would refuse them.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from cordwood.errors import ConfigError
from cordwood.security.sasl.scram_messages import NAME_CHARACTERS_MAX
from cordwood.security.security_state import (
    ScramCredential,
    ScramMechanism,
    SecurityState,
    UserCredential,
)
from cordwood.value_class import dataclass

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
SALT_BYTES: Final = 32
SALT_BYTES_MAX: Final = 1024
PASSWORD_CHARACTERS_MAX: Final = 1024

_HASHES: Final[Mapping[ScramMechanism, str]] = {
    ScramMechanism.SCRAM_SHA_256: "sha256",
    ScramMechanism.SCRAM_SHA_512: "sha512",
}
_TEXT: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def digest_size(mechanism: ScramMechanism) -> int:
    return hashlib.new(_HASHES[mechanism]).digest_size


def digest(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(_HASHES[mechanism], data).digest()


def keyed_digest(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, _HASHES[mechanism])


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds, without the interpreter's lock."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """What is kept of a password that was salted, by us or by a client."""
    client_key = keyed_digest(mechanism, salted_password, b"Client Key")
    return ScramCredential(
        salt=salt,
        iterations=iterations,
        stored_key=digest(mechanism, client_key),
        server_key=keyed_digest(mechanism, salted_password, b"Server Key"),
    )


def matches_password(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Takes milliseconds."""
    salted = salt_password(mechanism, password, credential.salt, credential.iterations)
    found = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


def check_user_name(name: str) -> None:
    """Raises `ConfigError` for a name that nobody can log in with, or that spoils logs."""
    if not name:
        raise ConfigError("user name", "", "must not be empty")
    if len(name) > NAME_CHARACTERS_MAX:
        raise ConfigError(
            "user name", f"{name[:32]}...", f"must have at most {NAME_CHARACTERS_MAX} characters"
        )
    if not name.isprintable():
        raise ConfigError(
            "user name", repr(name), "must not have control or other unprintable characters"
        )


def check_new_password(password: str) -> None:
    """Raises `ConfigError`, without the password."""
    if not password:
        raise ConfigError("password", "", "must not be empty")
    if len(password) > PASSWORD_CHARACTERS_MAX:
        raise ConfigError(
            "password", "[hidden]", f"must have at most {PASSWORD_CHARACTERS_MAX} characters"
        )
    if not password.isprintable():
        raise ConfigError(
            "password",
            "[hidden]",
            "must not have control or other unprintable characters, such as a line feed",
        )


def check_iterations(iterations: int) -> None:
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError("iterations", iterations, f"must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")


class _Shape(NamedTuple):
    """What a credential shows to everybody who asks for it."""

    iterations: int
    salt_size: int
    is_text: bool  # clients in Java make salts of digits and small letters


_SHAPES_MAX: Final = 256  # each costs a fraction of a microsecond of every login
_NUMBER_BYTES: Final = 8
_MASK: Final = (1 << 8 * _NUMBER_BYTES) - 1
_MIXER: Final = 0x9E3779B97F4A7C15  # odd: different numbers stay different
_USUAL: Final = _Shape(ITERATIONS_MIN, SALT_BYTES, is_text=False)


@dataclass(frozen=True, slots=True)
class KnownCredential:
    """A credential to compare with. If it `is_invented`, no password matches it."""

    credential: ScramCredential
    is_invented: bool


class UserDirectory:
    """The credential of every name, existing or not, as of one state. Immutable.

    A name without a credential has an invented one. To clients it looks like those that exist: the
    same name has the same salt and iterations each time, also after a restart, because they are
    derived from the secret of the store. The number of iterations, and the kind of salt, are those
    of some credential that exists. A new kind changes only the names that it is chosen for.
    """

    def __init__(self, state: SecurityState, secret: bytes) -> None:
        self.credentials = state.credentials
        self._secret = secret
        self._kinds = {
            mechanism: _kinds(
                credential
                for owner, credential in state.credentials.items()
                if owner.mechanism is mechanism
            )
            for mechanism in ScramMechanism
        }

    @property
    def mechanisms_in_use(self) -> tuple[ScramMechanism, ...]:
        """The mechanisms that some user has a credential for; the first one if there are none."""
        used = tuple(mechanism for mechanism in ScramMechanism if self._kinds[mechanism])
        return used or (ScramMechanism.SCRAM_SHA_256,)

    def find(self, user: str, mechanism: ScramMechanism) -> KnownCredential:
        # Invented in any case: a user that exists takes as long as one that does not.
        invented = self._invent(user, mechanism)
        known = self.credentials.get(UserCredential(user, mechanism))
        if known is None:
            return KnownCredential(invented, is_invented=True)
        return KnownCredential(known, is_invented=False)

    def _invent(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        name = user.encode(errors="surrogatepass")
        kind = mechanism.mechanism.encode()

        def derive(purpose: bytes) -> bytes:
            parts = b"\0".join([purpose, kind, name])
            return hmac.digest(self._secret, parts, "sha256")

        kinds = self._kinds[mechanism]
        shape = _chosen(kinds, _number(derive(b"shape"))) if kinds else _USUAL
        salt = hashlib.shake_256(derive(b"salt")).digest(shape.salt_size)
        if shape.is_text:
            salt = bytes(_TEXT[byte % len(_TEXT)] for byte in salt)
        return ScramCredential(
            salt=salt,
            iterations=shape.iterations,
            stored_key=digest(mechanism, derive(b"stored key")),
            server_key=digest(mechanism, derive(b"server key")),
        )


def _kinds(credentials: Iterable[ScramCredential]) -> tuple[tuple[int, _Shape], ...]:
    """Shapes with a random number each, the most frequent ones if there are very many."""
    counts = Counter(
        _Shape(
            credential.iterations,
            len(credential.salt),
            all(byte in _TEXT for byte in credential.salt),
        )
        for credential in credentials
    )
    kept = sorted(counts, key=lambda shape: (-counts[shape], shape))[:_SHAPES_MAX]
    return tuple((_number(hashlib.sha256(b"%d %d %d" % shape).digest()), shape) for shape in kept)


def _number(random: bytes) -> int:
    return int.from_bytes(random[:_NUMBER_BYTES], "big")


def _chosen(kinds: tuple[tuple[int, _Shape], ...], number: int) -> _Shape:
    """The kind that wins for `number`. A further one changes only the choices that it wins."""
    return max(kinds, key=lambda kind: (kind[0] ^ number) * _MIXER & _MASK)[1]


def matches_any(directory: UserDirectory, user: str, password: str) -> bool:
    """Whether it is the password of one of the user's credentials. Takes milliseconds.

    The same work is done for every name: one password is salted for each mechanism in use.
    """
    is_match = False
    for mechanism in directory.mechanisms_in_use:
        known = directory.find(user, mechanism)
        is_same = matches_password(mechanism, known.credential, password)
        is_match |= is_same and not known.is_invented
    return is_match
