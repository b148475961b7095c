"""ApiVersions: the APIs and versions we serve. The first request on most connections."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.net.requests.request import RequestContext, Route, RunsOn
from cordwood.protocol.api_catalog import API_CATALOG, Api, ApiKey
from cordwood.protocol.messages import encode_response
from cordwood.protocol.wire_values import INT32

if TYPE_CHECKING:
    from cordwood.protocol.schemas import cluster_messages as messages

# The version that every client can read, even if it asked in a version we do not serve.
_OLDEST: Final = 0
_FIRST_WITH_SOFTWARE: Final = 3
# Clients that use an older version fail on a feature whose minimum level is 0.
_FIRST_WITH_LEVEL_0: Final = 4

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

# The features of Kafka 4 that we serve. `group.version` 1 means consumer groups of KIP-848,
# `transaction.version` 2 an epoch for each transaction (KIP-890).
_LEVELS: Final = {"group.version": 1, "transaction.version": 2}
_SUPPORTED: Final[list[messages.ApiVersionsResponseSupportedFeaturesDict]] = [
    {"name": name, "min_version": 0, "max_version": level} for name, level in _LEVELS.items()
]
_FINALIZED: Final[list[messages.ApiVersionsResponseFinalizedFeaturesDict]] = [
    {"name": name, "min_version_level": level, "max_version_level": level}
    for name, level in _LEVELS.items()
]
_FEATURES_EPOCH: Final = 0  # constant: features cannot be switched on and off


FinalizedFeatures = Callable[[], tuple[int, Mapping[str, int]]]


class ApiVersionsHandler:
    """Lists the API catalog. Any thread may call it."""

    def __init__(
        self,
        more: Sequence[Api] = (),
        features: FinalizedFeatures | None = None,
        *,
        hidden: frozenset[ApiKey] = frozenset(),
    ) -> None:
        """A member of a cluster serves `more`, and has the `features` that it finalised.

        Clients are not told of the APIs in `hidden`.
        """
        self._hidden = hidden
        self._more = {api.key: api for api in more if api.key not in API_CATALOG}
        self._features = features

    def routes(self) -> list[Route]:
        return [
            Route(api=ApiKey.API_VERSIONS, handler=self.api_versions, runs_on=RunsOn.ANYWHERE),
        ]

    def api_versions(
        self, context: RequestContext, request: messages.ApiVersionsRequest
    ) -> messages.ApiVersionsResponseDict:
        version = context.api_version
        if version >= _FIRST_WITH_SOFTWARE and not (
            _SOFTWARE.fullmatch(request.client_software_name)
            and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            return {"error_code": ErrorCode.invalid_request}
        if version >= _FIRST_WITH_SOFTWARE:
            context.session.software.name = request.client_software_name
            context.session.software.version = request.client_software_version
        answer = _versions(version, self._hidden)
        if self._features is None:
            return answer
        epoch, levels = self._features()
        return {
            **answer,
            "api_keys": [*answer["api_keys"], *map(_ranged, self._more.values())],
            "finalized_features_epoch": epoch,
            "finalized_features": [
                {"name": name, "min_version_level": level, "max_version_level": level}
                for name, level in levels.items()
                if level > 0
            ],
        }


def unsupported_version_response(correlation_id: int) -> bytes:
    """The frame for a client that used a version we do not serve: it repeats in one we do."""
    frame = bytearray(_unsupported_version_frame())
    INT32.pack_into(frame, 4, correlation_id)
    return bytes(frame)


@cache
def _unsupported_version_frame() -> bytes:
    response: messages.ApiVersionsResponseDict = {
        **_versions(_OLDEST),
        "error_code": ErrorCode.unsupported_version,
    }
    return encode_response(ApiKey.API_VERSIONS, _OLDEST, 0, response)


@cache
def _versions(
    version: int, hidden: frozenset[ApiKey] = frozenset()
) -> messages.ApiVersionsResponseDict:
    has_level_0 = version >= _FIRST_WITH_LEVEL_0
    return {
        "error_code": ErrorCode.none,
        "api_keys": [_ranged(api) for api in API_CATALOG.values() if api.key not in hidden],
        "supported_features": _SUPPORTED if has_level_0 else [],
        "finalized_features_epoch": _FEATURES_EPOCH,
        "finalized_features": _FINALIZED,
    }


def _ranged(api: Api) -> messages.ApiVersionsResponseApiKeysDict:
    return {
        "api_key": api.key,
        "min_version": api.advertised_min_version,
        "max_version": api.max_version,
    }
