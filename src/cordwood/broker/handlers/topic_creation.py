"""CreateTopics and CreatePartitions: creating topics and adding partitions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cordwood.broker.client_policy import check_client_config
from cordwood.broker.cluster_identity import ClusterIdentity
from cordwood.broker.config.config_entries import topic_entries
from cordwood.broker.dynamic_configs import DynamicConfigs
from cordwood.broker.error_codes import ErrorCode, RefusedError, refusal
from cordwood.broker.net.requests.request import (
    RequestContext,
    Route,
    RunsOn,
    routes_on,
    split_repeated,
)
from cordwood.broker.security import access_table as needs
from cordwood.broker.security.client_quotas import Mutations
from cordwood.errors import ConfigError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.log.rules.topic_config import TopicConfig, canonical_texts
from cordwood.log.store.store import Store
from cordwood.log.topics.topic_registry import NewTopic
from cordwood.protocol.api_catalog import ApiKey

if TYPE_CHECKING:
    from cordwood.protocol.schemas import topic_messages as messages

logger = logging.getLogger(__name__)

_DEFAULT: Final = -1  # the broker's default, or given by the assignments
_REPLICAS: Final = 1
# The first versions whose clients know the error that a quota is used up.
_FIRST_STRICT_CREATION: Final = 6
_FIRST_STRICT_GROWTH: Final = 3


class TopicCreationHandler:
    """Creates topics and adds partitions. Called by workers: it waits for the disk."""

    def __init__(
        self,
        *,
        store: Store,
        identity: ClusterIdentity,
        dynamic: DynamicConfigs,
        closed_topics: frozenset[str] = frozenset(),
    ) -> None:
        self._closed_topics = closed_topics
        self._store = store
        self._node_id = identity.node_id
        self._dynamic = dynamic

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.WORKER,
            {
                ApiKey.CREATE_TOPICS: self.create_topics,
                ApiKey.CREATE_PARTITIONS: self.create_partitions,
            },
        )

    # --- CreateTopics ------------------------------------------------------------------------

    def create_topics(
        self, context: RequestContext, request: messages.CreateTopicsRequest
    ) -> messages.CreateTopicsResponseDict:
        mutations = context.mutations(is_strict=context.api_version >= _FIRST_STRICT_CREATION)
        topics, repeated = split_repeated(request.topics, lambda topic: topic.name)
        results: list[messages.CreateTopicsResponseTopicsDict] = [
            _refused(name, _repeated(name)) for name in repeated
        ]
        accepted: list[NewTopic] = []
        may_create_all = bool(topics) and context.may(needs.CREATE_TOPICS_CLUSTER)
        for topic in topics:
            try:
                if not (may_create_all or context.may(needs.CREATE_TOPICS_TOPIC, topic.name)):
                    raise RefusedError(needs.CREATE_TOPICS_TOPIC.code, "Authorization failed.")
                wanted, config = self._checked(topic)
                mutations.count(wanted.partitions)
                if request.validate_only:
                    results.append(self._created(context, wanted, config))
                else:
                    accepted.append(wanted)
            except Exception as error:
                results.append(_refused(topic.name, error))
        created = self._store.registry.create_all(accepted)
        for wanted, outcome in zip(accepted, created, strict=True):
            if isinstance(outcome, Exception):
                results.append(_refused(wanted.name, outcome))
                continue
            logger.info("created topic %s with %d partitions", wanted.name, wanted.partitions)
            result = self._created(context, wanted, outcome.config)
            results.append({**result, "topic_id": outcome.topic_id})
            context.changed(
                "CREATE",
                "TOPIC",
                wanted.name,
                new={"partitions": wanted.partitions, "configs": canonical_texts(wanted.config)},
            )
        return {"topics": results, "throttle_time": mutations.throttle_ms}

    def _checked(self, wanted: messages.CreateTopicsRequestTopics) -> tuple[NewTopic, TopicConfig]:
        name = wanted.name
        if name in INTERNAL_TOPICS:
            raise RefusedError(
                ErrorCode.invalid_topic_exception, f"{name} is internal; only the broker creates it"
            )
        partitions = self._partition_count(wanted)
        overrides = _overrides(wanted.configs)
        check_client_config(
            name,
            overrides,
            now=self._store.registry.defaults.effective(),
            archive_prefixes=self._dynamic.broker.archive_url_prefixes,
            closed_topics=self._closed_topics,
        )
        try:
            config = self._store.registry.check_new(name, partitions=partitions, config=overrides)
        except ConfigError as error:
            raise _with_code(error) from error
        return NewTopic(name=name, partitions=partitions, config=overrides), config

    def _partition_count(self, wanted: messages.CreateTopicsRequestTopics) -> int:
        count, replicas = wanted.num_partitions, wanted.replication_factor
        if wanted.assignments:
            if count != _DEFAULT or replicas != _DEFAULT:
                raise RefusedError(
                    ErrorCode.invalid_request,
                    "with assignments, num_partitions and replication_factor must both be -1",
                )
            return self._assigned_count(wanted.assignments)
        if replicas not in {_DEFAULT, _REPLICAS}:
            raise RefusedError(
                ErrorCode.invalid_replication_factor,
                f"replication factor is {replicas}, but must be 1 or -1: there is one broker",
            )
        if count == _DEFAULT:
            return self._dynamic.broker.num_partitions
        if count < 1:
            raise RefusedError(
                ErrorCode.invalid_partitions,
                f"number of partitions is {count}, but must be at least 1, or -1 for the default",
            )
        return int(count)

    def _assigned_count(
        self, assignments: Sequence[messages.CreateTopicsRequestAssignments]
    ) -> int:
        numbers = sorted(assignment.partition_index for assignment in assignments)
        if numbers != list(range(len(numbers))):
            raise RefusedError(
                ErrorCode.invalid_replica_assignment,
                f"partitions {numbers} are assigned, but must be 0 to {len(numbers) - 1}, "
                "each once",
            )
        for assignment in assignments:
            self._check_assignment(assignment.broker_ids)
        return len(numbers)

    def _check_assignment(self, broker_ids: Sequence[int]) -> None:
        if list(broker_ids) != [self._node_id]:
            raise RefusedError(
                ErrorCode.invalid_replica_assignment,
                f"a partition is assigned to {list(broker_ids)}, but must be to "
                f"[{self._node_id}]: there is no other broker",
            )

    def _created(
        self, context: RequestContext, topic: NewTopic, config: TopicConfig
    ) -> messages.CreateTopicsResponseTopicsDict:
        hidden = _hidden_configs(context, topic.name)
        if hidden:
            return {"name": topic.name, "error_code": ErrorCode.none, **hidden}
        entries = topic_entries(
            config,
            canonical_texts(topic.config),
            defaults=self._dynamic.static.topic_defaults,
            layers=self._dynamic.layers,
        )
        return {
            "name": topic.name,
            "error_code": ErrorCode.none,
            "num_partitions": topic.partitions,
            "replication_factor": _REPLICAS,
            "configs": [
                {
                    "name": entry.key.name,
                    "value": entry.value,
                    "read_only": entry.is_read_only,
                    "config_source": entry.source,
                    "is_sensitive": False,
                }
                for entry in entries
            ],
        }

    # --- CreatePartitions --------------------------------------------------------------------

    def create_partitions(
        self, context: RequestContext, request: messages.CreatePartitionsRequest
    ) -> messages.CreatePartitionsResponseDict:
        mutations = context.mutations(is_strict=context.api_version >= _FIRST_STRICT_GROWTH)
        topics, repeated = split_repeated(request.topics, lambda topic: topic.name)
        results: list[messages.CreatePartitionsResponseResultsDict] = [
            {"name": name, "error_code": code, "error_message": message}
            for name in repeated
            for code, message in [refusal(_repeated(name))]
        ]
        for topic in topics:
            try:
                if not context.may(needs.CREATE_PARTITIONS_TOPIC, topic.name):
                    code = needs.CREATE_PARTITIONS_TOPIC.code
                    results.append({"name": topic.name, "error_code": code})
                    continue
                before = self._grow(topic, mutations, validate_only=request.validate_only)
                if not request.validate_only:
                    context.changed(
                        "ALTER",
                        "TOPIC",
                        topic.name,
                        old={"partitions": before},
                        new={"partitions": topic.count},
                    )
                results.append({"name": topic.name, "error_code": ErrorCode.none})
            except Exception as error:
                code, message = refusal(error)
                results.append({"name": topic.name, "error_code": code, "error_message": message})
        return {"results": results, "throttle_time": mutations.throttle_ms}

    def _grow(
        self,
        wanted: messages.CreatePartitionsRequestTopics,
        mutations: Mutations,
        *,
        validate_only: bool,
    ) -> int:
        """Add partitions; how many there were before."""
        name, count = wanted.name, wanted.count
        now = self._store.topic(name).partition_count
        if name in INTERNAL_TOPICS:
            raise RefusedError(
                ErrorCode.invalid_partitions, f"{name} is internal; it keeps its {now} partitions"
            )
        if count <= now:
            raise RefusedError(
                ErrorCode.invalid_partitions,
                f"topic {name} has {now} partitions; {count} is not an increase",
            )
        if wanted.assignments is not None:
            if len(wanted.assignments) != count - now:
                raise RefusedError(
                    ErrorCode.invalid_replica_assignment,
                    f"{count - now} partitions are added, but {len(wanted.assignments)} assigned",
                )
            for assignment in wanted.assignments:
                self._check_assignment(assignment.broker_ids)
        try:
            self._store.registry.check_partition_count(count)
            mutations.count(count - now)
            if not validate_only:
                self._store.alter_topic(name, partitions=count)
                logger.info("topic %s now has %d partitions", name, count)
        except ConfigError as error:
            raise _with_code(error) from error
        return now


def _hidden_configs(context: RequestContext, topic: str) -> messages.CreateTopicsResponseTopicsDict:
    """In place of the configuration, for a client that may not know it; else empty."""
    if context.may(needs.CREATE_TOPICS_CONFIGS, topic):
        return {}
    return {
        "topic_config_error_code": needs.CREATE_TOPICS_CONFIGS.code,
        "configs": [],
        "num_partitions": -1,
        "replication_factor": -1,
    }


def _refused(name: str, error: Exception) -> messages.CreateTopicsResponseTopicsDict:
    code, message = refusal(error)
    return {"name": name, "error_code": code, "error_message": message, "configs": []}


def _repeated(name: str) -> RefusedError:
    return RefusedError(ErrorCode.invalid_request, f"topic {name!r} is in the request twice")


def _overrides(configs: Sequence[messages.CreateTopicsRequestConfigs]) -> dict[str, str]:
    _, repeated = split_repeated(configs, lambda config: config.name)
    if repeated:
        raise RefusedError(ErrorCode.invalid_config, f"set twice: {', '.join(repeated)}")
    overrides: dict[str, str] = {}
    for config in configs:
        if config.value is None:
            raise RefusedError(ErrorCode.invalid_config, f"{config.name} has no value")
        overrides[config.name] = config.value
    return overrides


def _with_code(error: ConfigError) -> Exception:
    """For Kafka the number of partitions is not a configuration, and has its own code."""
    if error.key == "partitions":
        return RefusedError(ErrorCode.invalid_partitions, str(error))
    return error
