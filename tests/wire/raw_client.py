"""A client without manners: it sends the bytes a test gives it, and shows what comes back."""

import socket
import struct
from collections.abc import Mapping
from typing import Any, Self

from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.messages import Fields, decode_response, encode_request

TIMEOUT_S = 60.0


def request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None = "raw"
) -> bytes:
    """The header of a request, with the tagged fields that the version asks for."""
    raw = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(raw)
    header = struct.pack(">hhih", api_key, version, correlation_id, length) + raw
    api = API_CATALOG.get(api_key)
    return header + b"\0" if api is not None and api.is_flexible(version) else header


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class RawClient:
    """One connection. Reading waits for at most `TIMEOUT_S`: a test never hangs."""

    def __init__(self, address: str, *, receive_buffer_bytes: int | None = None) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect((host, int(port)))
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    # --- bytes -------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        """The next answer without its size. `ConnectionError` when the connection ends first."""
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._receive(size - len(data))
            if not part:
                raise ConnectionResetError(f"closed after {len(data)} of {size} bytes")
            data += part
        return bytes(data)

    def _receive(self, size: int) -> bytes:
        return self.socket.recv(size)

    def is_closed_by_broker(self) -> bool:
        """Waits for the broker to end the connection; False when it answers something."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def reset(self) -> None:
        """Break the connection off, as a client that dies with its machine."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # --- requests ----------------------------------------------------------------------------

    def send(
        self, api_key: int, version: int, body: bytes = b"", client_id: str | None = "raw"
    ) -> int:
        """Send a request; return its correlation id."""
        self._correlation_id += 1
        header = request_header(api_key, version, self._correlation_id, client_id)
        self.send_bytes(framed(header + body))
        return self._correlation_id

    def receive(self, api_key: int, version: int) -> tuple[int, bytes]:
        """The correlation id and the body of the next answer."""
        frame = self.receive_frame()
        (correlation_id,) = struct.unpack_from(">i", frame)
        is_flexible = API_CATALOG[api_key].is_flexible(version)
        return correlation_id, frame[5 if is_flexible and api_key != ApiKey.API_VERSIONS else 4 :]

    def call(self, api_key: ApiKey, version: int, request: Mapping[str, Any]) -> Fields:
        """Send one of the requests that `protocol.messages` knows; return the answer."""
        sent = self.send(api_key, version, encode_request(api_key, version, request))
        correlation_id, body = self.receive(api_key, version)
        assert correlation_id == sent
        return decode_response(api_key, version, body)

    def is_answered(self) -> bool:
        """Whether the broker still listens to this connection."""
        return bool(self.call(ApiKey.API_VERSIONS, 0, {}).error_code == 0)
