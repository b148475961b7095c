"""The client's side of SASL, written a second time so that the broker does not judge itself."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

from cordwood.security.sasl.scram_credentials import credential_of, salt_password
from cordwood.security.security_state import (
    ScramCredential,
    ScramMechanism,
    SecurityState,
    UserCredential,
)

SALT = bytes(range(16))


def credential(
    mechanism: ScramMechanism, password: str, *, salt: bytes = SALT, iterations: int = 4096
) -> ScramCredential:
    salted = salt_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def state_of(
    *users: tuple[str, str], mechanisms: tuple[ScramMechanism, ...] = tuple(ScramMechanism)
) -> SecurityState:
    """Users and their passwords, for each mechanism."""
    return SecurityState(
        credentials={
            UserCredential(name, mechanism): credential(mechanism, password)
            for name, password in users
            for mechanism in mechanisms
        }
    )


class ScramClient:
    """``first`` and ``final`` are what it sends; ``is_ours`` judges the broker's last word."""

    def __init__(
        self, hash_name: str, user: str, password: str, nonce: str = "abcdef", header: str = "n,,"
    ) -> None:
        self._hash = hash_name
        self._password = password
        self._nonce = nonce
        self._header = header
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"

    def first(self) -> bytes:
        return (self._header + self._bare).encode()

    def final(self, server_first: bytes, change: Callable[[str], str] = lambda text: text) -> bytes:
        text = server_first.decode()
        fields = dict(part.split("=", 1) for part in text.split(","))
        assert fields["r"].startswith(self._nonce)
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        binding = base64.b64encode(self._header.encode()).decode()
        without_proof = change(f"c={binding},r={fields['r']}")
        message = f"{self._bare},{text},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, message, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._expected = hmac.digest(server_key, message, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def is_ours(self, server_final: bytes) -> bool:
        return server_final == b"v=" + base64.b64encode(self._expected)


def plain(user: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{user}\0{password}".encode()


def bearer(token: str, header: str = "n,,") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01\x01".encode()


class Issuer:
    """Issues tokens that it signs with a key of its own, and publishes the key."""

    def __init__(self, key_id: str = "first", algorithm: str = "ES256") -> None:
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

        self.key_id = key_id
        self.algorithm = algorithm
        kind = algorithm[:2]
        self.private: Any
        if kind == "ES":
            self.private = ec.generate_private_key(ec.SECP256R1())
        elif kind == "Ed":
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            self.private = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def public(self) -> dict[str, Any]:
        from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

        kinds: dict[str, Any] = {"ES": ECAlgorithm, "Ed": OKPAlgorithm}
        kind = kinds.get(self.algorithm[:2], RSAAlgorithm)
        described: dict[str, Any] = json.loads(kind.to_jwk(self.private.public_key()))
        return {**described, "kid": self.key_id, "use": "sig"}

    def key_set(self) -> bytes:
        return json.dumps({"keys": [self.public()]}).encode()

    def token(self, *, now_s: float, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        import jwt

        given = {
            "sub": "alice",
            "iss": "https://issuer.example",
            "aud": "cordwood",
            "iat": int(now_s),
            "exp": int(now_s) + 300,
        }
        given |= claims
        return jwt.encode(
            {name: value for name, value in given.items() if value is not None},
            self.private,
            algorithm=self.algorithm,
            headers={"kid": self.key_id, **(headers or {})},
        )
