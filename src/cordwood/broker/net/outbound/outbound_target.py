"""Where another node is, how to connect to it, and what is said if that fails."""

import ssl
from typing import NamedTuple

from cordwood.broker.security.peer_tls import PeerTls
from cordwood.errors import BrokerNotTrustedError, BrokerUnreachableError, CordwoodError
from cordwood.security.clients.client_security import ClientSecurity


class Target(NamedTuple):
    """Where to connect, and how."""

    host: str
    port: int
    security: ClientSecurity
    tls: PeerTls | None  # of `security`; owned by whoever connects, and shared by its targets

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def unreachable(self, reason: str) -> BrokerUnreachableError:
        return BrokerUnreachableError(str(self), reason)

    def not_secured(self, error: OSError) -> CordwoodError:
        """Why a TLS handshake failed."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return BrokerNotTrustedError(str(self), error.verify_message)
        if isinstance(error, ssl.SSLError):
            return self.unreachable(f"the TLS handshake failed: {error.reason or error}")
        return self.unreachable(error.strerror or str(error))
