"""One connection to one broker: sends a request and returns its answer.

The first request asks for the versions that the broker serves; later ones use the newest version
that both sides know. Answers have limits on size and time. A connection that failed in the middle
of an answer cannot be used again, and raises the same error.

With TLS the handshake comes first; with SASL the client authenticates after the versions are
known, and again before the session expires. Nothing else is sent before.
"""

import itertools
import socket
import struct
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

from cordwood.errors import (
    BrokerError,
    BrokerUnreachableError,
    CordwoodError,
    FormatError,
    LimitExceededError,
)
from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.messages import decode_response, encode_request
from cordwood.protocol.wire_values import skip_tagged_fields
from cordwood.quantities import MIB
from cordwood.remote.api_calls import ApiCall, Response
from cordwood.remote.authentication import NAMES, Authentication, not_asked_for
from cordwood.security.clients.client_security import PLAINTEXT, ClientSecurity

if TYPE_CHECKING:
    import ssl  # not at run time: it takes longer to import than most connections take

    from cordwood.protocol.schemas import cluster_messages as messages

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0
# A broker sends at most fetch.max.bytes, 55 MiB by default, or one batch that is larger.
FRAME_BYTES_MAX: Final = 256 * MIB

_CLIENT_ID: Final = "cordwood"
_HEADER: Final = struct.Struct(">hhih")
_INT32: Final = struct.Struct(">i")
_VERSIONS_SPOKEN_BY_ALL: Final = 0
# The first bytes of a TLS alert, version 3.x, where a plain client expects the size of an answer.
_TLS_ALERTS: Final = range(0x1503_0000, 0x1504_0000)
_VERSIONS_ANSWER_MAX: Final = 1 * MIB  # a broker has less than a hundred APIs


class Connector:
    """Opens connections with the same protection. Any thread may call it.

    The certificates are read when the first connection needs them.
    """

    def __init__(
        self,
        security: ClientSecurity | None = None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self._security = security or PLAINTEXT
        self._connect_timeout_s = connect_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._context: ssl.SSLContext | None = None

    def __call__(self, host: str, port: int) -> "WireConnection":
        if self._context is None:
            self._context = _context_of(self._security)
        return WireConnection(
            host,
            port,
            security=self._security,
            context=self._context,
            connect_timeout_s=self._connect_timeout_s,
            answer_timeout_s=self._answer_timeout_s,
        )


class WireConnection:
    """Connects when it is created. For one thread at a time.

    `context` is the TLS context of `security`, if the caller has made it already.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        security: ClientSecurity = PLAINTEXT,
        context: "ssl.SSLContext | None" = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._security = security
        self._answer_timeout_s = answer_timeout_s
        self._frame_bytes_max = frame_bytes_max
        self._numbers = itertools.count(1)
        self._answered_count = 0
        self._failure: BrokerError | None = None
        self._authentication: Authentication | None = None
        if context is None:
            context = _context_of(security)
        try:
            self._socket = socket.create_connection((host, port), timeout=connect_timeout_s)
        except OSError as error:
            raise self._unreachable(error) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self._socket = self._encrypted(context, host)
            self._versions = self._ask_versions()
            if security.protocol.has_sasl:
                self._authentication = Authentication(
                    security, self.address, self._sasl_exchange, time.monotonic
                )
                self._authenticate()
        except BaseException:
            self._socket.close()
            raise

    def _encrypted(self, context: "ssl.SSLContext", host: str) -> "ssl.SSLSocket":
        try:
            # A scope, as in fe80::1%eth0, is not a part of the name.
            return context.wrap_socket(self._socket, server_hostname=host.partition("%")[0])
        except (OSError, ValueError) as error:
            if not isinstance(error, OSError):
                raise BrokerUnreachableError(self.address, str(error)) from error
            from cordwood.remote.connection_failures import handshake_failure

            raise handshake_failure(self.address, host, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_broken(self) -> bool:
        """Whether the connection has failed or was closed."""
        return self._failure is not None

    def close(self) -> None:
        """Safe to repeat."""
        self._failure = self._failure or BrokerUnreachableError(
            self.address, "the connection was closed"
        )
        self._socket.close()

    # --- versions ----------------------------------------------------------------------------

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        """Uses version 0, which every broker serves."""
        version = _VERSIONS_SPOKEN_BY_ALL
        body = self._exchange(
            ApiKey.API_VERSIONS, version, b"", answer_bytes_max=_VERSIONS_ANSWER_MAX
        )
        try:
            answer = cast(
                "messages.ApiVersionsResponse",
                decode_response(ApiKey.API_VERSIONS, version, body),
            )
        except FormatError as error:
            raise self._failed(f"it is not a Kafka broker: {error}") from error
        if answer.error_code:
            raise self._failed(f"it refuses ApiVersions with error {answer.error_code}")
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def speaks(self, api: ApiKey) -> bool:
        return api in self._versions

    def version_of(self, api: ApiKey, *, at_most: int | None = None) -> int:
        """The newest version of an API that both sides know, not newer than `at_most`."""
        ours = KNOWN_APIS[api]
        theirs = self._versions.get(api)
        if theirs is None:
            raise BrokerUnreachableError(self.address, f"it does not serve {ours.name}")
        newest = min(ours.max_version, theirs[1], ours.max_version if at_most is None else at_most)
        if newest < max(ours.min_version, theirs[0]):
            raise BrokerUnreachableError(
                self.address,
                f"it serves versions {theirs[0]} to {theirs[1]} of {ours.name}, "
                f"but this client knows {ours.min_version} to {newest}",
            )
        return newest

    # --- requests ----------------------------------------------------------------------------

    def call(
        self,
        call: ApiCall[Response],
        *,
        at_most: int | None = None,
        timeout_s: float | None = None,
    ) -> Response:
        """The answer to a request, in the newest common version up to `at_most`."""
        key = call.key
        version = self.version_of(key, at_most=at_most)
        sent = encode_request(key, version, call.request)
        body = self.exchange(key, version, sent, timeout_s=timeout_s)
        try:
            return cast("Response", decode_response(key, version, body))
        except FormatError as error:
            name = KNOWN_APIS[key].name
            raise self._failed(f"its answer to {name} cannot be read: {error}") from error

    def exchange(
        self, api: ApiKey, version: int, body: bytes, *, timeout_s: float | None = None
    ) -> memoryview:
        """Send the body of a request; return the body of its answer."""
        if self._authentication is not None and self._failure is None:
            self._authenticate_again(self._authentication)
        return self._exchange(api, version, body, timeout_s=timeout_s)

    def _exchange(
        self,
        api: int,
        version: int,
        body: bytes,
        *,
        timeout_s: float | None = None,
        answer_bytes_max: int | None = None,
    ) -> memoryview:
        if self._failure is not None:
            raise self._failure
        limit_s = self._answer_timeout_s if timeout_s is None else timeout_s
        number = next(self._numbers) & 0x7FFFFFFF
        is_flexible = api not in NAMES and KNOWN_APIS[ApiKey(api)].is_flexible(version)
        header = _HEADER.pack(api, version, number, len(_CLIENT_ID)) + _CLIENT_ID.encode()
        header += b"\0" if is_flexible else b""
        try:
            self._socket.settimeout(limit_s)
            self._socket.sendall(_INT32.pack(len(header) + len(body)) + header)
            self._socket.sendall(body)
            frame = self._receive_frame(
                time.monotonic() + limit_s, answer_bytes_max or self._frame_bytes_max
            )
        except (OSError, FormatError) as error:
            raise self._failed_with(self._why(error, api, limit_s)) from error
        except BaseException:
            # Interrupted in the middle of an answer: the next request would receive the rest.
            self._failed("a request was interrupted")
            raise
        (answered,) = _INT32.unpack_from(frame)
        if answered != number:
            raise self._failed(f"it answers request {answered} instead of {number}")
        self._answered_count += 1
        # The client of ApiVersions does not know the versions yet: the answer has no tags.
        if is_flexible and api != ApiKey.API_VERSIONS:
            return frame[skip_tagged_fields(frame, _INT32.size) :]
        return frame[_INT32.size :]

    def _why(self, error: OSError | FormatError, api: int, limit_s: float) -> BrokerError:
        from cordwood.remote.connection_failures import (
            alert_failure,
            first_request_failure,
            no_certificate,
        )

        protocol = self._security.protocol
        if isinstance(error, OSError):
            alert = alert_failure(self.address, error)
            if alert is not None:
                return alert
        is_first = not self._answered_count and not protocol.has_tls
        if is_first and not isinstance(error, TimeoutError):
            return first_request_failure(self.address, error)
        if isinstance(error, TimeoutError):
            name = NAMES.get(api) or KNOWN_APIS[ApiKey(api)].name
            hint = "; if the listener uses TLS, pass --tls" if is_first else ""
            return BrokerUnreachableError(
                self.address, f"no answer to {name} in {limit_s:g} s{hint}"
            )
        failure = self._unreachable(error)
        if not self._answered_count and isinstance(error, OSError):
            # TLS 1.3: the broker looks at the client's certificate after the client's first words.
            return no_certificate(failure, has_one=self._security.identity is not None)
        if self._answered_count == 1 and not protocol.has_sasl and isinstance(error, OSError):
            return not_asked_for(failure)
        return failure

    def _unreachable(self, error: OSError | FormatError) -> BrokerUnreachableError:
        from cordwood.remote.connection_failures import reason_of

        return BrokerUnreachableError(self.address, reason_of(error))

    # --- authentication ------------------------------------------------------------------------

    def _sasl_exchange(self, api: int, version: int, body: bytes) -> memoryview:
        return self._exchange(api, version, body)

    def _authenticate(self) -> None:
        assert self._authentication is not None
        try:
            self._authentication.run(self._versions)
        except FormatError as error:
            raise self._failed(f"its answer to SASL cannot be read: {error}") from error
        except BrokerError as error:
            raise self._failed_with(error) from error.__cause__
        except CordwoodError:
            # No password at hand: the broker waits for a message that will not come.
            self._failed("the client could not authenticate")
            raise

    def _authenticate_again(self, authentication: Authentication) -> None:
        if authentication.is_due:
            self._authenticate()

    def _receive_frame(self, deadline_s: float, bytes_max: int) -> memoryview:
        (size,) = _INT32.unpack(self._receive(_INT32.size, deadline_s))
        if size in _TLS_ALERTS and not self._security.protocol.has_tls:
            raise ConnectionResetError("it answers with TLS")
        if not _INT32.size <= size <= bytes_max:
            raise LimitExceededError("an answer", size=size, limit=bytes_max)
        return self._receive(size, deadline_s)

    def _receive(self, size: int, deadline_s: float) -> memoryview:
        """The next `size` bytes. The deadline is for all, because a peer may send one by one."""
        data = memoryview(bytearray(size))
        got = 0
        while got < size:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            count = self._socket.recv_into(data[got:])
            if not count:
                raise ConnectionResetError("it closed the connection")
            got += count
        return data

    def _failed(self, reason: str) -> BrokerError:
        return self._failed_with(BrokerUnreachableError(self.address, reason))

    def _failed_with(self, failure: BrokerError) -> BrokerError:
        self._failure = failure
        self._socket.close()
        return failure


def _context_of(security: ClientSecurity) -> "ssl.SSLContext | None":
    if not security.protocol.has_tls:
        return None
    from cordwood.security.clients.client_tls import tls_context

    return tls_context(security)
