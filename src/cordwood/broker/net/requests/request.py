"""A request on its way through the broker: who sent it, where its handler runs, how it ends."""

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

from cordwood.broker.net.requests.session import Session
from cordwood.broker.security.access_table import Need
from cordwood.broker.security.client_quotas import ClientQuotas, Mutations
from cordwood.broker.security.security_events import (
    UNWATCHED,
    AdministrativeChange,
    Detail,
    Origin,
    SecurityEvents,
)
from cordwood.protocol.acl_codes import CLUSTER_NAME
from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.request_header import RequestHeader
from cordwood.value_class import dataclass, field

Response = Mapping[str, object]
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """What a handler may know about the sender of a request."""

    header: RequestHeader
    session: Session
    events: SecurityEvents = UNWATCHED  # takes reports for the audit log
    quotas: ClientQuotas = field(default_factory=ClientQuotas)

    def mutations(self, *, is_strict: bool) -> Mutations:
        """Counts the partitions that the request creates or deletes under the client's quota."""
        return self.quotas.mutations(
            self.session.principal.name, self.client_id, is_strict=is_strict
        )

    @property
    def origin(self) -> Origin:
        """Who sent the request, for the audit log."""
        session = self.session
        return Origin(
            principal=str(session.principal),
            address=session.client_host,
            listener=session.listener.name,
            client_id=self.client_id,
        )

    @property
    def api_name(self) -> str:
        return KNOWN_APIS[self.header.api_key].name

    def changed(
        self,
        operation: str,
        resource: str,
        name: str,
        *,
        old: Mapping[str, Detail] | None = None,
        new: Mapping[str, Detail] | None = None,
    ) -> None:
        """Report a change that this request made, with the values before and after it."""
        self.events.report(
            AdministrativeChange(
                origin=self.origin,
                api=self.api_name,
                operation=operation,
                resource=resource,
                name=name,
                old=old or {},
                new=new or {},
            )
        )

    @property
    def client_host(self) -> str:
        return self.session.client_host

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    def may(self, need: Need, name: str = CLUSTER_NAME) -> bool:
        """As `Session.may`."""
        return self.session.may(need, name, self.header.client_id)

    def refused(self, need: Need, name: str) -> None:
        """Report a refusal that was not decided by `may`."""
        self.session.report(need, name, self.header.client_id, is_allowed=False)


class Deferred:
    """An answer that comes later. It is given once, by any thread; later calls are ignored."""

    __slots__ = ("_error", "_is_done", "_lock", "_on_done", "_response")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_done = False
        self._response: Response | None = None
        self._error: BaseException | None = None
        self._on_done: Callable[[Response | None, BaseException | None], None] | None = None

    @property
    def is_done(self) -> bool:
        return self._is_done

    @property
    def response(self) -> Response | None:
        """The answer, after it was given."""
        return self._response

    def resolve(self, response: Response) -> bool:
        """Answer; False if there was an answer before."""
        return self._finish(response, None)

    def fail(self, error: BaseException) -> bool:
        """There is no answer: the connection is closed. Only for bugs of ours."""
        return self._finish(None, error)

    def when_done(self, function: Callable[[Response | None, BaseException | None], None]) -> None:
        """Call `function` with the answer or the error, now or when it comes."""
        with self._lock:
            if not self._is_done:
                self._on_done = function
                return
        function(self._response, self._error)

    def _finish(self, response: Response | None, error: BaseException | None) -> bool:
        with self._lock:
            if self._is_done:
                return False
            self._is_done = True
            self._response, self._error = response, error
            function = self._on_done
        if function is not None:
            function(response, error)
        return True


class RunsOn(Enum):
    """Where a handler runs. A handler that may touch the disk never runs on CONTROL."""

    CONTROL = "control"
    WORKER = "worker"
    ANYWHERE = "anywhere"  # in the control loop, or in another thread if the request is large


# Each handler declares the type of its own request, see `protocol/schemas/*.pyi`.
Handler = Callable[[RequestContext, Any], Response | Deferred]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The handler of an API, and the thread it runs in."""

    api: ApiKey
    handler: Handler
    runs_on: RunsOn


def routes_on(runs_on: RunsOn, handlers: Mapping[ApiKey, Handler]) -> list[Route]:
    return [Route(api=api, handler=handler, runs_on=runs_on) for api, handler in handlers.items()]


def split_repeated(
    items: Iterable[Item], key: Callable[[Item], Key]
) -> tuple[list[Item], list[Key]]:
    """Items of a request whose key is unique, and the keys that several items have; in order."""
    listed = list(items)
    counts = Counter(map(key, listed))
    return (
        [item for item in listed if counts[key(item)] == 1],
        [found for found, count in counts.items() if count > 1],
    )
