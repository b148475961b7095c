"""How a `cordwood.Broker` of a program or a test is protected, and how its clients connect.

The certificates are made once for each process and are for this machine; the passwords are the
caller's. Needs the extra `security`, unless the protocol is SASL_PLAINTEXT.
"""

import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cordwood.errors import ConfigError
from cordwood.protocol.acl_codes import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from cordwood.security.certificates.certificate_authority import (
    CertificateAuthority,
    IssuedCertificate,
)
from cordwood.security.certificates.certificate_store import CertificateStore
from cordwood.security.clients.client_security import ClientProtocol, ClientSecurity
from cordwood.security.sasl.sasl_client import PLAIN, SCRAM_MECHANISMS
from cordwood.security.sasl.scram_credentials import (
    ITERATIONS_MIN,
    SALT_BYTES,
    check_new_password,
    check_user_name,
    credential_of,
    salt_password,
)
from cordwood.security.secret import Secret
from cordwood.security.security_state import (
    AclRule,
    ScramCredential,
    ScramMechanism,
    SecurityState,
    UserCredential,
)
from cordwood.value_class import dataclass, field, replace

_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_MECHANISMS: Final = (*SCRAM_MECHANISMS, PLAIN)
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}")

Rules = Iterable["AclRule | Iterable[AclRule]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSecurity:
    """How a broker is protected.

    protocol     SASL_SSL, SASL_PLAINTEXT or SSL, in any case
    users        names with their passwords, for SCRAM and, with TLS, for PLAIN
    acls         access rules, as `allow` and `deny` make them; None: everybody may do everything
    super_users  names of users who may do everything, whatever the rules say

    With SSL, clients show a certificate: the user is the name in it, as `client_security` makes it.
    """

    protocol: str = "SASL_SSL"
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    acls: Rules | None = None
    super_users: Sequence[str] = ()

    def __post_init__(self) -> None:
        known = [each.value for each in ClientProtocol if each is not ClientProtocol.PLAINTEXT]
        if self.protocol.upper() not in known:
            raise ConfigError("security", self.protocol, f"must be one of {', '.join(known)}")
        if self.users and not self.kind.has_sasl:
            raise ConfigError("users", ", ".join(self.users), "SSL has certificates, no passwords")
        for name, password in self.users.items():
            check_user_name(name)
            check_new_password(password)

    @property
    def kind(self) -> ClientProtocol:
        return ClientProtocol(self.protocol.upper())

    @property
    def rules(self) -> frozenset[AclRule]:
        found: set[AclRule] = set()
        for item in self.acls or ():
            found |= {item} if isinstance(item, AclRule) else set(item)
        return frozenset(found)

    def config(self, folder: str) -> dict[str, object]:
        """The keys of the broker; writes its certificates into `folder`."""
        found: dict[str, object] = {"listeners": f"{self.kind}://127.0.0.1:0"}
        if self.kind.has_tls:
            server = os.path.join(folder, "server.pem")
            _write(server, _server_certificate().store_pem)
            _write(ca_file(folder), _authority().certificate_pem)
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": server}
        if self.kind.has_sasl:
            mechanisms = _MECHANISMS if self.kind.has_tls else SCRAM_MECHANISMS
            found["sasl.enabled.mechanisms"] = ",".join(mechanisms)
        else:
            found |= {
                "ssl.client.auth": "required",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": ca_file(folder),
                "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/,DEFAULT",
            }
        if self.acls is not None or self.super_users:
            found["authorizer.class.name"] = "standard"
            found["super.users"] = ";".join(f"User:{name}" for name in self.super_users)
        return found

    def apply(self, state: SecurityState) -> SecurityState:
        """The state with these users and rules; others stay."""
        credentials = dict(state.credentials)
        for name, password in self.users.items():
            for mechanism in ScramMechanism:
                owner = UserCredential(name, mechanism)
                credentials[owner] = _credential(mechanism, name, password)
        return replace(state, credentials=credentials, rules=state.rules | self.rules)

    def client_security(
        self, folder: str, user: str | None, *, mechanism: str = "SCRAM-SHA-256"
    ) -> ClientSecurity:
        """How a client connects as `user`, by default the first one."""
        trust = None
        if self.kind.has_tls:
            trust = CertificateStore(option="ssl.ca.location", location=ca_file(folder))
        if not self.kind.has_sasl:
            return ClientSecurity(
                protocol=self.kind, trust=trust, identity=self._identity(folder, user)
            )
        name = next(iter(self.users), None) if user is None else user
        if name is None or name not in self.users:
            known = ", ".join(self.users) or "none"
            raise ConfigError("user", user or "", f"is not a user of this broker; known: {known}")
        return ClientSecurity(
            protocol=self.kind,
            trust=trust,
            mechanism=mechanism,
            user=name,
            password=Secret(self.users[name]),
        )

    def _identity(self, folder: str, user: str | None) -> CertificateStore:
        name = user or "client"
        if not _FILE_NAME.fullmatch(name):
            raise ConfigError("user", name, "must have 1 to 64 letters, digits, _, ., @ or -")
        path = os.path.join(folder, f"client-{name}.pem")
        if not os.path.exists(path):
            _write(path, _authority().issue(name).store_pem)
        return CertificateStore(option="ssl.certificate.location", location=path)


def ca_file(folder: str) -> str:
    return os.path.join(folder, "ca.pem")


# --- rules -------------------------------------------------------------------------------------


def allow(
    user: str,
    *operations: str,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    host: str = "*",
) -> tuple[AclRule, ...]:
    """Rules that allow `user` the operations, such as "read", on a resource, or on the cluster.

    A name that ends with ``*`` is a prefix; ``*`` alone is every name. User ``*`` is everybody.
    """
    named = {
        AclResource.TOPIC: topic,
        AclResource.GROUP: group,
        AclResource.TRANSACTIONAL_ID: transactional_id,
    }
    return _rules(AclPermission.ALLOW, user, operations, named, host)


def deny(
    user: str,
    *operations: str,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    host: str = "*",
) -> tuple[AclRule, ...]:
    """Rules that deny; they count more than those that allow. See `allow`."""
    named = {
        AclResource.TOPIC: topic,
        AclResource.GROUP: group,
        AclResource.TRANSACTIONAL_ID: transactional_id,
    }
    return _rules(AclPermission.DENY, user, operations, named, host)


def _rules(
    permission: AclPermission,
    user: str,
    operations: Sequence[str],
    named: Mapping[AclResource, str | None],
    host: str,
) -> tuple[AclRule, ...]:
    given = [(resource, name) for resource, name in named.items() if name is not None]
    if len(given) > 1:
        raise ConfigError("acls", str(given), "a rule is about one resource")
    resource, name = given[0] if given else (AclResource.CLUSTER, CLUSTER_NAME)
    pattern = AclPattern.LITERAL
    if len(name) > 1 and name.endswith("*"):
        pattern, name = AclPattern.PREFIXED, name[:-1]
    return tuple(
        AclRule(
            resource=resource,
            pattern=pattern,
            name=name,
            principal=f"User:{user}",
            host=host,
            operation=_operation(text),
            permission=permission,
        )
        for text in operations or ("all",)
    )


def _operation(text: str) -> AclOperation:
    try:
        found = AclOperation[text.upper()]
    except KeyError:
        found = AclOperation.ANY
    if found is AclOperation.ANY:
        names = ", ".join(each.name.lower() for each in AclOperation if each.value > 1)
        raise ConfigError("operation", text, f"must be one of {names}")
    return found


# --- made once for each process ----------------------------------------------------------------


@functools.cache
def _authority() -> CertificateAuthority:
    return CertificateAuthority.create("cordwood.Broker")


@functools.cache
def _server_certificate() -> IssuedCertificate:
    return _authority().issue("cordwood", _HOSTS)


@functools.lru_cache(maxsize=1024)
def _credential(mechanism: ScramMechanism, user: str, password: str) -> ScramCredential:
    salt = os.urandom(SALT_BYTES)
    salted = salt_password(mechanism, password, salt, ITERATIONS_MIN)
    return credential_of(mechanism, salted, salt, ITERATIONS_MIN)


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
