"""Clients of tests."""

from typing import Final

from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.net.requests.session import Session

LISTENER: Final = ClientListener(name="PLAINTEXT", host="broker.example", port=9092)
LOCAL_SESSION: Final = Session(
    listener=LISTENER, client_host="127.0.0.1", frame_bytes_max=100 * 1024 * 1024
)
