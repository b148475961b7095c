"""The keys that tokens are signed with: a JSON Web Key Set (RFC 7517), without private keys.

Only keys of RSA (2048 bits and more), of elliptic curves and of Ed25519 or Ed448 are used, each
only with its own algorithms. So a token can neither be unsigned nor be signed with a public key as
if that were a password.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import ConfigError, FormatError
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from jwt.algorithms import AllowedPublicKeys

_KEYS_MAX: Final = 1000
_RSA_BITS_MIN: Final = 2048
_RSA_BITS_MAX: Final = 16384  # a larger one takes long to check
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final[Mapping[str, tuple[str, ...]]] = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
    "Ed448": ("EdDSA",),
}


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key, and the algorithms that it may be used with."""

    key_id: str | None
    algorithms: tuple[str, ...]
    public: "AllowedPublicKeys"


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of an issuer at one time."""

    keys: Sequence[PublicKey] = ()

    def find(self, key_id: str | None, algorithm: str) -> PublicKey | None:
        """The key that a token names; for a token that names none, the only one that fits."""
        fitting = [
            key
            for key in self.keys
            if algorithm in key.algorithms and (key_id is None or key.key_id == key_id)
        ]
        return fitting[0] if len(fitting) == 1 else None


def require_packages() -> None:
    """Raises `ConfigError` if the packages for tokens are missing."""
    try:
        import cryptography  # noqa: F401  is needed by jwt for public keys
        import jwt  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "sasl.enabled.mechanisms",
            "OAUTHBEARER",
            f"needs the package {error.name}: pip install 'cordwood[security]'",
        ) from error


def parse_key_set(body: bytes) -> KeySet:
    """The usable keys of a set. Raises `FormatError` if it is none, or has no usable key."""
    try:
        found = json.loads(body)
        listed = found["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError("it is not a JSON Web Key Set, an object with 'keys'") from None
    if not isinstance(listed, list) or len(listed) > _KEYS_MAX:
        raise FormatError(f"'keys' must be a list of at most {_KEYS_MAX} keys")
    keys = [key for key in map(_public_key, listed) if key is not None]
    if not keys:
        raise FormatError(
            "it has no usable key: RSA of 2048 bits or more, EC P-256, P-384 or P-521, or OKP, "
            "for signatures"
        )
    return KeySet(tuple(keys))


def _public_key(described: Any) -> PublicKey | None:
    """None for a key that is for something else, or is damaged."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
    from jwt.exceptions import InvalidKeyError

    if not isinstance(described, dict) or described.get("use", "sig") != "sig":
        return None
    operations = described.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    key_id, kind = described.get("kid"), described.get("kty")
    if not isinstance(key_id, str | None):
        return None
    # Only the public part, should an issuer have published more.
    public: dict[str, str] = {
        name: described[name]
        for name in ("kty", "n", "e", "crv", "x", "y")
        if isinstance(described.get(name), str)
    }
    try:
        match kind:
            case "RSA":
                algorithms: tuple[str, ...] = _RSA
                found: AllowedPublicKeys = RSAAlgorithm.from_jwk(public)  # type: ignore[assignment]
                if not _RSA_BITS_MIN <= found.key_size <= _RSA_BITS_MAX:  # type: ignore[union-attr]
                    return None
            case "EC":
                algorithms = _CURVES.get(public.get("crv", ""), ())
                found = ECAlgorithm.from_jwk(public)  # type: ignore[assignment]
            case "OKP":
                algorithms = _CURVES.get(public.get("crv", ""), ())
                found = OKPAlgorithm.from_jwk(public)  # type: ignore[assignment]
            case _:
                return None
    except (InvalidKeyError, UnsupportedAlgorithm, ValueError, TypeError):
        return None
    named = described.get("alg")
    if named is not None:
        algorithms = tuple(algorithm for algorithm in algorithms if algorithm == named)
    return PublicKey(key_id, algorithms, found) if algorithms else None
