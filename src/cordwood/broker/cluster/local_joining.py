"""How a process joins the others of its node, and the assembly of such a member.

1  the store is open, no log has a role; the keeper sends the image from here on
2  the first image: host what it assigns
3  tell the keeper, which tells everybody that this process is ready; then accept clients. One who
   came before would be told that there are no topics
"""

import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID

from cordwood.broker.cluster.cluster_assembly import MemberSurroundings
from cordwood.broker.cluster.cluster_member import ClusterMember
from cordwood.broker.cluster.cluster_services import ClusterServices, TopicOrders
from cordwood.broker.cluster.cluster_transactions import ClusterTransactions
from cordwood.broker.cluster.control.keeper_link import KeeperCalls
from cordwood.broker.cluster.control.local_control import KeeperEvents, KeeperNews, LocalControl
from cordwood.broker.config.cluster_config import ClusterConfig
from cordwood.broker.net.outbound.outbound_target import Target
from cordwood.errors import CordwoodError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.security.clients.client_security import ClientSecurity
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

# What the keeper decides. The rest that controllers do has no meaning for one node.
KEPT_APIS: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlace:
    """Where a process is among the others of its node, and whom it tells of its end.

    `peer_listener` is the one that the processes use among each other. `stop` and `lost` are called
    by any thread; see `KeeperEvents`.
    """

    epoch: int
    peer_listener: str
    news: KeeperNews
    calls: KeeperCalls
    stop: Callable[[], None]
    lost: Callable[[], None]


class LocalJoining:
    """Joins and stays. Owned by the broker's server."""

    def __init__(
        self,
        place: ProcessPlace,
        around: MemberSurroundings,
    ) -> None:
        self._loop = loop = around.control_loop
        self._data_loop = around.data_loop
        self._news = place.news
        self._when_failed = around.when_failed
        self._accept: Callable[[], None] | None = None
        self._member: ClusterMember | None = None
        self._has_hosted = False
        self._has_joined = False
        assert around.security_file is not None
        self.control = LocalControl(
            loop,
            epoch=place.epoch,
            news=place.news,
            calls=place.calls,
            events=KeeperEvents(
                changed=self._changed,
                secured=around.security_file.follow,
                pinged=self._pinged,
                stop=place.stop,
                lost=place.lost,
            ),
        )

    def start(self, member: ClusterMember, accept: Callable[[], None]) -> None:
        """The loops turn. `accept` lets clients in, once everybody knows that this one is ready."""
        self._member, self._accept = member, accept
        self._loop.call_soon(self.control.start)

    def _changed(self) -> None:
        assert self._member is not None
        assert self._accept is not None
        image = self.control.image
        own = image.brokers.get(self._member.view.node_id)
        if own is None or own.epoch != self.control.broker_epoch:
            return
        self._member.apply(image, None if self._has_hosted else self._hosted)
        self._has_hosted = True
        if not own.is_fenced and not self._has_joined:
            self._has_joined = True
            self._accept()

    def _pinged(self, answer: Callable[[], None]) -> None:
        """Answer if the data loop turns, too. Clients are served there."""
        self._data_loop.call_soon(lambda: self._loop.call_soon(answer))

    def _hosted(self) -> None:
        try:
            self._news.is_ready()
        except OSError as error:
            logger.error("the keeper cannot be told that this process is ready: %s", error)

    def disk_failed(self, directory_id: UUID, error: CordwoodError, *, is_last: bool) -> None:
        """A log failed: end, and let the next life open what the disk has. Any thread."""
        logger.error("data directory %s failed (the last one: %s)", directory_id, is_last)
        self._loop.call_soon(lambda: self._when_failed(error))

    def leave(self, when_left: Callable[[], None]) -> None:
        """Nobody else can lead."""
        when_left()

    def stop(self) -> None:
        """Ask the keeper nothing any more. Any thread may call it."""
        self._loop.call_soon(self.control.stop)


def assemble_process(
    place: ProcessPlace, around: MemberSurroundings
) -> tuple[LocalJoining, ClusterMember, ClusterServices]:
    """Everything of a process among others. Nothing runs before `LocalJoining.start`."""
    config = ClusterConfig()
    joining = LocalJoining(place, around)
    control = joining.control
    orders = TopicOrders(control, around.control_loop, around.broker, config)
    member = ClusterMember(
        store=around.store,
        config=config,
        node_id=around.broker.node_id,
        listener=place.peer_listener,
        control=control,
        target_of=lambda at: Target(at.host, at.port, ClientSecurity(), None),
        want_topic=lambda _name: None,  # the keeper creates internal topics at its start
        when_disk_failed=joining.disk_failed,
        assign_directory=lambda _topic_id, _partition, _directory: None,
        control_loop=around.control_loop,
        data_loop=around.data_loop,
        watch=around.watch,
        syncs=around.syncs,
        is_alone=True,
    )
    services = ClusterServices(
        member=member,
        control=control,
        orders=orders,
        loop=around.control_loop,
        relayed=KEPT_APIS,
    )
    services.transactions = ClusterTransactions(
        member,
        lambda: control.image,
        offsets=around.store.committed_offsets,
        table=around.table,
        control_loop=around.control_loop,
        data_loop=around.data_loop,
        request_sync=around.syncs.request,
        workers=around.workers,
        allocate=services.producer_ids.allocate,
        clock=around.clock,
    )
    return joining, member, services
