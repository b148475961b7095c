"""The rules that a command asks for: principals, hosts, operations and resources, combined.

With `is_producer` and `is_consumer` the operations come from a recipe, as in ``kafka-acls``:

    producer   WRITE, DESCRIBE and CREATE on topics, WRITE and DESCRIBE on transactional ids
    consumer   READ and DESCRIBE on topics, READ on groups
"""

from collections.abc import Iterable, Iterator
from itertools import product

from cordwood.protocol.acl_codes import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from cordwood.security.access.acl_filter import AclFilter, InvalidRuleError, new_rule
from cordwood.security.security_state import AclRule
from cordwood.value_class import dataclass

_Place = tuple[AclResource, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclWish:
    """What the options of a command say. Without hosts: every host; without operations: ALL."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    denied_hosts: tuple[str, ...] = ()
    operations: tuple[AclOperation, ...] = ()
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    is_cluster: bool = False
    is_producer: bool = False
    is_consumer: bool = False
    pattern: AclPattern = AclPattern.LITERAL

    @property
    def places(self) -> list[_Place]:
        found = [(AclResource.TOPIC, name) for name in self.topics]
        found += [(AclResource.GROUP, name) for name in self.groups]
        found += [(AclResource.TRANSACTIONAL_ID, name) for name in self.transactional_ids]
        return [*found, (AclResource.CLUSTER, CLUSTER_NAME)] if self.is_cluster else found

    def rules(self) -> list[AclRule]:
        """The rules to add. Raises `InvalidRuleError` if something is missing or wrong."""
        if not (self.allowed or self.denied):
            raise InvalidRuleError("name somebody with --allow-principal or --deny-principal")
        self._check_recipe()
        if not self.places:
            raise InvalidRuleError(
                "name a resource with --topic, --group, --transactional-id or --cluster"
            )
        sides = [
            *product(self.allowed, self.allowed_hosts or ("*",), (AclPermission.ALLOW,)),
            *product(self.denied, self.denied_hosts or ("*",), (AclPermission.DENY,)),
        ]
        return [
            new_rule(
                resource=resource,
                pattern=AclPattern.LITERAL if resource is AclResource.CLUSTER else self.pattern,
                name=name,
                principal=principal,
                host=host,
                operation=operation,
                permission=permission,
            )
            for resource, name, operation in self._actions()
            for principal, host, permission in sides
        ]

    def _check_recipe(self) -> None:
        if not (self.is_producer or self.is_consumer):
            return
        if self.operations or self.denied:
            raise InvalidRuleError(
                "--producer and --consumer allow what a client needs; leave out --operation and "
                "--deny-principal"
            )
        if not self.topics:
            raise InvalidRuleError("--producer and --consumer need --topic")
        if self.is_consumer and not self.groups:
            raise InvalidRuleError("--consumer needs --group")

    def _actions(self) -> Iterator[tuple[AclResource, str, AclOperation]]:
        for resource, name in self.places:
            for operation in self._operations_on(resource):
                yield resource, name, operation

    def _operations_on(self, resource: AclResource) -> Iterable[AclOperation]:
        if not (self.is_producer or self.is_consumer):
            return self.operations or (AclOperation.ALL,)
        wanted: dict[AclOperation, None] = {}
        if self.is_producer:
            wanted |= dict.fromkeys(_PRODUCER.get(resource, ()))
        if self.is_consumer:
            wanted |= dict.fromkeys(_CONSUMER.get(resource, ()))
        return wanted

    def filters(self) -> list[AclFilter]:
        """The filters for listing and removing: what is not said matches everything."""
        sides: list[tuple[str | None, str | None, AclPermission]] = [
            *product(self.allowed, self.allowed_hosts or (None,), (AclPermission.ALLOW,)),
            *product(self.denied, self.denied_hosts or (None,), (AclPermission.DENY,)),
        ]
        if not sides:
            sides = [(None, host, AclPermission.ALLOW) for host in self.allowed_hosts]
            sides += [(None, host, AclPermission.DENY) for host in self.denied_hosts]
        places: list[tuple[AclResource, str | None]] = list(self.places)
        return [
            AclFilter(
                resource=resource,
                name=name,
                pattern=AclPattern.ANY if name in {None, CLUSTER_NAME} else self.pattern,
                principal=principal,
                host=host,
                operation=operation,
                permission=permission,
            )
            for resource, name in places or [(AclResource.ANY, None)]
            for principal, host, permission in sides or [(None, None, AclPermission.ANY)]
            for operation in self.operations or (AclOperation.ANY,)
        ]


_PRODUCER = {
    AclResource.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    AclResource.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    AclResource.CLUSTER: (AclOperation.IDEMPOTENT_WRITE,),
}
_CONSUMER = {
    AclResource.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    AclResource.GROUP: (AclOperation.READ,),
}
