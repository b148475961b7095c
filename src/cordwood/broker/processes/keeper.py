"""The keeper of a node: owns everything of the store but partitions, and decides for its workers.

Requests that change something come from the workers, which have checked whether their clients may.
The broker's own handlers serve them here, over a store in which all partitions are absent. What
they changed in the topic catalog, and in the file of users, rules and quotas, is then told to all
workers, in one order.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID, uuid4

from cordwood.broker.cluster.control.keeper_link import FrameKind, encode_answer, encode_records
from cordwood.broker.cluster_identity import ClientListener, ClusterIdentity
from cordwood.broker.config_owners import ConfigOwner, ConfigOwners, ResourceType
from cordwood.broker.dynamic_configs import DynamicConfigs
from cordwood.broker.error_codes import ErrorCode, RefusedError
from cordwood.broker.handlers.access_rules import AccessRulesHandler
from cordwood.broker.handlers.client_quotas import ClientQuotasHandler
from cordwood.broker.handlers.topic_configs import TopicConfigsHandler
from cordwood.broker.handlers.topic_creation import TopicCreationHandler
from cordwood.broker.handlers.topic_deletion import TopicDeletionHandler
from cordwood.broker.handlers.users import UsersHandler
from cordwood.broker.net.requests.request import Handler, RequestContext, Response
from cordwood.broker.net.requests.session import Session
from cordwood.broker.processes.process_task import NodeConfig
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.cluster.local.process_cluster import ProcessCluster
from cordwood.errors import CordwoodError, FormatError
from cordwood.log.store.store import Store
from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.envelope import decode_principal
from cordwood.protocol.messages import decode_request, encode_response
from cordwood.protocol.request_header import (
    RequestHeader,
    decode_request_header,
    skip_header_tags,
)
from cordwood.protocol.wire_values import INT16
from cordwood.quantities import Offset
from cordwood.security.principal import Principal
from cordwood.security.security_file import SecurityFile
from cordwood.value_class import replace

if TYPE_CHECKING:
    from cordwood.protocol.schemas import control_messages as messages

logger = logging.getLogger(__name__)

_SIZE_BYTES: Final = 4  # of a frame, before the rest of it

# Of internal topics, unless configured: groups and transactions are spread over processes.
COORDINATOR_PARTITIONS: Final = 16

# Sends a frame to all workers that have an image. Called in the order of what is told.
Broadcast = Callable[[FrameKind, bytes], None]


class _TopicOwners(ConfigOwners):
    """Of topics only: the settings of brokers and groups are read when a process starts."""

    def find(self, resource_type: int, name: str) -> ConfigOwner:
        if resource_type != ResourceType.TOPIC:
            raise RefusedError(
                ErrorCode.invalid_request,
                "several processes serve this node, so the settings of brokers and groups cannot "
                "be changed while it runs; set them in the configuration file and restart",
            )
        return super().find(resource_type, name)


class Keeper:
    """Any thread may call it. Owned by the supervisor, which closes the store."""

    def __init__(
        self, store: Store, config: NodeConfig, cluster: ProcessCluster, broadcast: Broadcast
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._broadcast = broadcast
        self._deciding = threading.Lock()  # taken after `registry.changing`, never before
        self._session = Session(
            listener=ClientListener(name="KEEPER", host="", port=0),
            client_host="",
            frame_bytes_max=config.broker.socket_request_max_bytes,
        )
        self._security = store.open_security()
        self._encoded_security = self._security.encoded()
        self._handlers = _handlers(store, self._security, config)
        # Each worker removes offsets of its groups itself; here there are none.
        store.committed_offsets.coordinate_partly(store.registry.id_of)
        self._publish()
        self._security.when_changed(lambda _state: self._secure())

    # --- workers -----------------------------------------------------------------------------

    def begins(self, index: int) -> int:
        """A worker is about to be started; return the epoch of its life."""
        with self._deciding:
            self._tell(self._cluster.begins(index, uuid4()))
            return self._cluster.epoch_of(index)

    @property
    def encoded_security(self) -> bytes:
        """Users, access rules and quotas, for workers."""
        return self._encoded_security

    def is_ready(self, index: int) -> None:
        with self._deciding:
            self._tell(self._cluster.is_ready(index))

    def ends(self, index: int) -> None:
        with self._deciding:
            self._tell(self._cluster.ends(index))

    def subscribe(self, add: Broadcast) -> None:
        """Give a worker everything by `add`; from then on it is among those who are told.

        Its store has read the catalog before. So the image must have all that the catalog has:
        a worker removes topics that are not in its first image.
        """
        with self._store.registry.changing, self._deciding:
            self._publish()
            add(FrameKind.SECURITY, self._encoded_security)
            add(
                FrameKind.RECORDS,
                encode_records(self._cluster.image.end, self._cluster.snapshot()),
            )

    # --- what workers ask ----------------------------------------------------------------------

    def begin_partition(self, body: bytes) -> bytes:
        """A partition is about to acknowledge its first records. Raises `OSError`."""
        topic, topic_id, number = json.loads(body)
        self._store.registry.begin(topic, UUID(topic_id), number)
        return encode_answer(Offset(0), b"")

    def serve(self, body: bytes) -> bytes:
        """Serve a request that a worker passes on. Raises `FormatError` if it cannot be read."""
        (api,), (version,) = INT16.unpack_from(body), INT16.unpack_from(body, 2)
        if api == ApiKey.ENVELOPE:
            answer = self._serve_sealed(version, memoryview(body)[4:])
        else:
            header = RequestHeader(api, version, 0, None)
            answer = self._handled(header, memoryview(body)[4:], self._session)
        with self._deciding:
            self._publish()
            end = self._cluster.image.end
        return encode_answer(end, answer)

    def _serve_sealed(self, version: int, body: memoryview) -> bytes:
        """Serve the request of a client, which a worker has put into an envelope."""
        sealed = cast("messages.EnvelopeRequest", decode_request(ApiKey.ENVELOPE, version, body))
        data = memoryview(bytes(sealed.request_data))
        header, at = decode_request_header(data)
        if KNOWN_APIS[header.api_key].is_flexible(header.api_version):
            at = skip_header_tags(data, at)
        principal = Principal(*decode_principal(bytes(sealed.request_principal or b"")))
        session = replace(
            self._session,
            principal=principal,
            client_host=str(ip_address(bytes(sealed.client_host_address))),
        )
        frame = self._handled(header, data[at:], session)
        response = {"error_code": ErrorCode.none, "response_data": frame[_SIZE_BYTES:]}
        return encode_response(ApiKey.ENVELOPE, version, 0, response)

    def _handled(self, header: RequestHeader, body: memoryview, session: Session) -> bytes:
        """The frame of the answer."""
        api, version = header.api_key, header.api_version
        handler = self._handlers.get(ApiKey(api))
        if handler is None:
            raise FormatError(f"the keeper does not serve the API {api}")
        context = RequestContext(header=header, session=session)
        answer = handler(context, decode_request(api, version, body))
        assert isinstance(answer, Mapping), answer
        return encode_response(api, version, header.correlation_id, answer)

    def _publish(self) -> None:
        self._tell(self._cluster.topics_are(self._store.registry.entries()))

    def _secure(self) -> None:
        """Users, rules or quotas have changed. The record behind them says when all is told."""
        with self._deciding:
            self._encoded_security = self._security.encoded()
            self._broadcast(FrameKind.SECURITY, self._encoded_security)
            self._tell(self._cluster.turn())

    def _tell(self, records: list[bytes]) -> None:
        if records:
            body = encode_records(self._cluster.image.end, records)
            self._broadcast(FrameKind.RECORDS, body)


def _handlers(store: Store, security: SecurityFile, config: NodeConfig) -> Mapping[ApiKey, Handler]:
    # Archives are not served by several processes: clients may not ask for one.
    broker = replace(config.broker, archive_url_prefixes=())
    dynamic = DynamicConfigs(store, broker)
    dynamic.restore()
    identity = ClusterIdentity(node_id=broker.node_id, cluster_id=store.cluster_id, host="", port=0)
    creation = TopicCreationHandler(store=store, identity=identity, dynamic=dynamic)
    deletion = TopicDeletionHandler(store=store, table=PartitionTable(store), config=broker)
    configs = TopicConfigsHandler(_TopicOwners(store, identity, dynamic))
    rules = AccessRulesHandler(security, has_authorizer=config.security.access.has_authorizer)

    def allocate_producer_ids(_context: RequestContext, _request: object) -> Response:
        try:
            block = store.producer_ids.allocate_block()
        except (CordwoodError, OSError) as error:
            logger.error("no producer ids can be reserved: %s", error)
            return {"error_code": ErrorCode.unknown_server_error}
        return {
            "error_code": ErrorCode.none,
            "producer_id_start": block.start,
            "producer_id_len": len(block),
        }

    return {
        ApiKey.CREATE_TOPICS: creation.create_topics,
        ApiKey.CREATE_PARTITIONS: creation.create_partitions,
        ApiKey.DELETE_TOPICS: deletion.delete_topics,
        ApiKey.ALTER_CONFIGS: configs.alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
        ApiKey.CREATE_ACLS: rules.create_acls,
        ApiKey.DELETE_ACLS: rules.delete_acls,
        ApiKey.ALTER_CLIENT_QUOTAS: ClientQuotasHandler(security).alter,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: UsersHandler(security).alter,
        ApiKey.ALLOCATE_PRODUCER_IDS: allocate_producer_ids,
    }
