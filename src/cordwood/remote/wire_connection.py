"""One connection to one broker: sends a request and returns its answer.

The first request asks for the versions that the broker serves; later ones use the newest version
that both sides know. Answers have limits on size and time. A connection that failed in the middle
of an answer cannot be used again, and raises the same error.
"""

import itertools
import socket
import struct
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

from cordwood.errors import BrokerUnreachableError, FormatError, LimitExceededError
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.messages import decode_response, encode_request
from cordwood.protocol.wire_values import skip_tagged_fields
from cordwood.quantities import MIB
from cordwood.remote.api_calls import ApiCall, Response

if TYPE_CHECKING:
    from cordwood.protocol.schemas import cluster_messages as messages

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0
# A broker sends at most fetch.max.bytes, 55 MiB by default, or one batch that is larger.
FRAME_BYTES_MAX: Final = 256 * MIB

_CLIENT_ID: Final = "cordwood"
_HEADER: Final = struct.Struct(">hhih")
_INT32: Final = struct.Struct(">i")
_VERSIONS_SPOKEN_BY_ALL: Final = 0


class WireConnection:
    """Connects when it is created. For one thread at a time."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._answer_timeout_s = answer_timeout_s
        self._frame_bytes_max = frame_bytes_max
        self._numbers = itertools.count(1)
        self._failure: BrokerUnreachableError | None = None
        try:
            self._socket = socket.create_connection((host, port), timeout=connect_timeout_s)
        except OSError as error:
            raise BrokerUnreachableError(self.address, _why(error)) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._versions = self._ask_versions()
        except BaseException:
            self._socket.close()
            raise

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
        body = self.exchange(ApiKey.API_VERSIONS, version, b"")
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
        ours = API_CATALOG[api]
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
            name = API_CATALOG[key].name
            raise self._failed(f"its answer to {name} cannot be read: {error}") from error

    def exchange(
        self, api: ApiKey, version: int, body: bytes, *, timeout_s: float | None = None
    ) -> memoryview:
        """Send the body of a request; return the body of its answer."""
        if self._failure is not None:
            raise self._failure
        limit_s = self._answer_timeout_s if timeout_s is None else timeout_s
        number = next(self._numbers) & 0x7FFFFFFF
        is_flexible = API_CATALOG[api].is_flexible(version)
        header = _HEADER.pack(api, version, number, len(_CLIENT_ID)) + _CLIENT_ID.encode()
        header += b"\0" if is_flexible else b""
        try:
            self._socket.settimeout(limit_s)
            self._socket.sendall(_INT32.pack(len(header) + len(body)) + header)
            self._socket.sendall(body)
            frame = self._receive_frame(time.monotonic() + limit_s)
        except TimeoutError as error:
            raise self._failed(f"no answer to {API_CATALOG[api].name} in {limit_s:g} s") from error
        except (OSError, FormatError) as error:
            raise self._failed(_why(error)) from error
        except BaseException:
            # Interrupted in the middle of an answer: the next request would receive the rest.
            self._failed("a request was interrupted")
            raise
        (answered,) = _INT32.unpack_from(frame)
        if answered != number:
            raise self._failed(f"it answers request {answered} instead of {number}")
        # The client of ApiVersions does not know the versions yet: the answer has no tags.
        if is_flexible and api != ApiKey.API_VERSIONS:
            return frame[skip_tagged_fields(frame, _INT32.size) :]
        return frame[_INT32.size :]

    def _receive_frame(self, deadline_s: float) -> memoryview:
        (size,) = _INT32.unpack(self._receive(_INT32.size, deadline_s))
        if not _INT32.size <= size <= self._frame_bytes_max:
            raise LimitExceededError("an answer", size=size, limit=self._frame_bytes_max)
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

    def _failed(self, reason: str) -> BrokerUnreachableError:
        self._failure = BrokerUnreachableError(self.address, reason)
        self._socket.close()
        return self._failure


def _why(error: OSError | FormatError) -> str:
    if isinstance(error, FormatError):
        return f"it is not a Kafka broker: {error}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__
