"""A request that this broker sends to another node, and its answer."""

from collections.abc import Callable
from typing import NamedTuple

from cordwood.errors import CordwoodError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.value_class import dataclass

ANSWER_TIMEOUT_S = 30.0


class OutboundAnswer(NamedTuple):
    """The body of an answer, without its header. `body` is the receiver's to keep."""

    version: int
    body: memoryview


OutboundResult = OutboundAnswer | CordwoodError


class PeerMark(NamedTuple):
    """An API that only the right kind of node serves, and what is wrong with a node that lacks it.

    It is for requests that other nodes would answer too, and in a misleading way.
    """

    api: ApiKey
    or_else: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundCall:
    """One request.

    `encode` makes its body, in the newest version up to `version_max` that both sides know.
    `when_done` is called once, in the loop of the connection, with the answer or with an error; but
    not after the connection was closed by its owner. After an error nobody knows whether the other
    node has carried out the request. A node without the `mark` is not sent the request.
    """

    api: ApiKey
    version_min: int
    version_max: int
    encode: Callable[[int], bytes]
    when_done: Callable[[OutboundResult], None]
    timeout_s: float = ANSWER_TIMEOUT_S
    mark: PeerMark | None = None
