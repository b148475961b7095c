"""Why a connection failed, in the words of its user, and what to do about it."""

import ssl
from typing import Final

from cordwood.errors import (
    AuthenticationFailedError,
    BrokerError,
    BrokerNotTrustedError,
    BrokerUnreachableError,
    FormatError,
)

_HOST_MISMATCH: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, .._IP_ADDRESS_MISMATCH
_EXPIRED: Final = frozenset({9, 10})
_NOT_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}
)
_TRUST_ADVICE: Final = (
    "name the file with the certificate of its authority: --ca FILE, or ssl.truststore.location or "
    "ssl.ca.location in a properties file"
)


def handshake_failure(address: str, host: str, error: OSError) -> BrokerError:
    """The error of a TLS handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return BrokerNotTrustedError(address, _distrust(host, error))
    alert = alert_failure(address, error)
    if alert is not None:
        return alert
    if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        return BrokerUnreachableError(
            address, "it does not answer with TLS; leave out --tls if the listener has none"
        )
    if isinstance(error, TimeoutError):
        return BrokerUnreachableError(
            address, "no answer to the TLS handshake in time; does the listener use TLS?"
        )
    if isinstance(error, (ssl.SSLEOFError, ConnectionError)):
        return BrokerUnreachableError(
            address,
            "it closed the connection during the TLS handshake; does the listener use TLS?",
        )
    return BrokerUnreachableError(address, f"the TLS handshake failed: {reason_of(error)}")


def alert_failure(address: str, error: OSError) -> BrokerError | None:
    """The error for an alert with which the broker refuses this client; None if it is none."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if "ALERT" not in reason:
        return None
    if "CERTIFICATE_REQUIRED" in reason:
        return AuthenticationFailedError(
            address,
            "it requires a certificate of the client: --cert FILE, or ssl.keystore.location in a "
            "properties file",
        )
    if "PROTOCOL_VERSION" in reason:
        return BrokerUnreachableError(
            address, "it accepts no version of TLS that this client may use (ssl.enabled.protocols)"
        )
    if "UNKNOWN_CA" in reason or "CERTIFICATE" in reason or "ACCESS_DENIED" in reason:
        return AuthenticationFailedError(
            address, f"it does not accept the client's certificate ({_words(reason)})"
        )
    return BrokerUnreachableError(address, f"it ends TLS with an alert: {_words(reason)}")


def no_certificate(failure: BrokerUnreachableError, *, has_one: bool) -> BrokerUnreachableError:
    """The error of the first request of a connection with TLS."""
    question = (
        "does it accept the client's certificate?"
        if has_one
        else "does it require a certificate of the client (--cert FILE, ssl.keystore.location)?"
    )
    return BrokerUnreachableError(failure.address, f"{failure.reason} at once; {question}")


def first_request_failure(address: str, error: OSError | FormatError) -> BrokerUnreachableError:
    """The error of the first request of a connection without TLS."""
    if isinstance(error, TimeoutError):
        reason = "no answer in time; does the listener use TLS (--tls)?"
    elif isinstance(error, OSError):
        reason = f"{reason_of(error)} at once; does the listener use TLS (--tls)?"
    else:
        reason = f"it is not a Kafka broker: {error}"
    return BrokerUnreachableError(address, reason)


def reason_of(error: OSError | FormatError) -> str:
    if isinstance(error, FormatError):
        return f"it is not a Kafka broker: {error}"
    if isinstance(error, ssl.SSLEOFError):
        return "it closed the connection"
    if isinstance(error, ssl.SSLError):
        return _words(error.reason or str(error))
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__


def _distrust(host: str, error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _HOST_MISMATCH:
        return (
            f"its certificate is not for {host}; connect with a name that is in the certificate, "
            "or switch off the check (--no-verify-host, ssl.endpoint.identification.algorithm=)"
        )
    said = error.verify_message.rstrip(".")
    if error.verify_code in _EXPIRED:
        return f"its {said}; compare the clocks, or renew the certificate"
    return f"its certificate is not signed by a known authority ({said}); {_TRUST_ADVICE}"


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()
