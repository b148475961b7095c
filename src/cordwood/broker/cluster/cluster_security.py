"""Users, access rules and quotas of the cluster, as the newest image has them.

The controllers keep them, and requests that change them are relayed. The file `cordwood-security`
of the data directory belongs to a broker that is alone: one with contents is refused, because
nobody would notice that they are not in force.

Rules are put in force by a thread of their own, because ten thousand of them take a while. Only the
newest image counts: if images come quickly, those between are skipped.
"""

import contextlib
import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final

from cordwood.cluster.image.access_image import AccessRule
from cordwood.cluster.image.image_change import ImageChange
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage
from cordwood.errors import ClusterError, ConfigError, CordwoodError, FormatError
from cordwood.protocol.acl_codes import AclOperation, AclPattern, AclPermission, AclResource
from cordwood.security.quotas.quota_rules import entity_of
from cordwood.security.security_document import SECURITY_FILE
from cordwood.security.security_file import SecurityFile
from cordwood.security.security_source import Change
from cordwood.security.security_state import (
    AclRule,
    QuotaEntity,
    ScramCredential,
    ScramMechanism,
    SecurityState,
    UserCredential,
)

logger = logging.getLogger(__name__)

_SECRET_BYTES: Final = 32
_NOWHERE: Final = "users, access rules and quotas of a cluster are changed by its controllers"


class ClusterSecurity:
    """A `SecuritySource`. Images come from the control loop; any thread may ask.

    `when_failed` is called, in another thread, if the cluster has a rule that is not understood:
    then this broker would give access that others refuse.
    """

    def __init__(self, *, has_authorizer: bool) -> None:
        self.secret = secrets.token_bytes(_SECRET_BYTES)
        self.directories: Sequence[str] = ()
        self.when_failed: Callable[[CordwoodError], None] = lambda _error: None
        self._has_authorizer = has_authorizer
        self._has_failed = False
        self._image = self._in_force = NO_METADATA
        self._state = SecurityState()
        self._changing = threading.Lock()
        self._listeners: list[Callable[[SecurityState], None]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cordwood-access")

    @property
    def state(self) -> SecurityState:
        return self._state

    def when_changed(self, listener: Callable[[SecurityState], None]) -> None:
        with self._changing:
            self._listeners.append(listener)
            listener(self._state)

    def change(self, change: Change) -> SecurityState:
        """Requests are relayed instead, so nobody gets here."""
        raise ConfigError(SECURITY_FILE, "", _NOWHERE)

    # --- images ------------------------------------------------------------------------------

    def apply(self, change: ImageChange) -> None:
        """A new image. In the control loop."""
        if change.is_whole or change.access_rules or change.quotas or change.scram_users:
            self._image = change.new
            self._submit(self._use_newest)

    def when_in_force(self, then: Callable[[], None]) -> None:
        """Call `then`, in another thread, once all images that were applied are in force.

        It is not called if they cannot be.
        """

        def is_in_force() -> None:
            if not self._has_failed:
                then()

        self._submit(is_in_force)

    def _submit(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the broker stops
            self._thread.submit(work)

    def stop(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _use_newest(self) -> None:
        image = self._image
        if image is self._in_force:
            return
        try:
            with self._changing:
                self._state = security_state(image, self._in_force, self._state)
                self._in_force = image
                for listener in self._listeners:
                    listener(self._state)
        except FormatError as error:
            self._has_failed = True
            self.when_failed(error)
        except Exception as error:
            logger.exception("users, access rules and quotas of the cluster are not in force")
            self._has_failed = True
            reason = f"users, access rules and quotas of the cluster are not in force: {error}"
            self.when_failed(ClusterError(reason))
        else:
            self._warn_of_open_door()

    def _warn_of_open_door(self) -> None:
        if self._state.rules and not self._has_authorizer:
            self._has_authorizer = True  # one warning is enough
            logger.warning(
                "the cluster has access rules, but this broker has no authorizer, so it allows "
                "everything to everybody; set authorizer.class.name"
            )


def refuse_local_security(file: SecurityFile, directory: str) -> None:
    """Raise `ConfigError` if the file of a broker that was alone has users, rules or quotas."""
    state = file.state
    kinds = (("users", state.credentials), ("access rules", state.rules), ("quotas", state.quotas))
    found = [name for name, values in kinds if values]
    if found:
        raise ConfigError(
            "log.dirs",
            directory,
            f"its file {SECURITY_FILE} has {' and '.join(found)}, which are not in force in a "
            "cluster: the controllers keep them. Create them there (kafka-configs.sh and "
            "kafka-acls.sh, or `cordwood users`, `acls` and `quotas` at a broker of the cluster), "
            "then move the file away",
        )


# --- from the image ------------------------------------------------------------------------------


def security_state(
    image: MetadataImage, before: MetadataImage, state: SecurityState
) -> SecurityState:
    """The state that `image` describes. `state` is that of `before`: equal parts are shared.

    Raises `FormatError` for a rule that is not understood and may deny something.
    """
    return SecurityState(
        credentials=state.credentials
        if image.scram_users is before.scram_users
        else _credentials(image),
        rules=state.rules if image.access_rules is before.access_rules else _rules(image),
        quotas=state.quotas if image.quotas is before.quotas else _quotas(image),
    )


def _credentials(image: MetadataImage) -> Mapping[UserCredential, ScramCredential]:
    known = {kind.value for kind in ScramMechanism}
    return MappingProxyType(
        {
            UserCredential(name, ScramMechanism(mechanism)): ScramCredential(
                salt=found.salt,
                iterations=found.iterations,
                stored_key=found.stored_key,
                server_key=found.server_key,
            )
            for (name, mechanism), found in image.scram_users.items()
            if mechanism in known
        }
    )


def _rules(image: MetadataImage) -> frozenset[AclRule]:
    rules: set[AclRule] = set()
    for rule in image.access_rules.values():
        try:
            rules.add(_rule(rule))
        except ValueError as error:
            if rule.permission_type != AclPermission.ALLOW:
                raise FormatError(f"an access rule is not understood: {rule}") from error
            logger.warning("an access rule is not understood, and allows nothing: %s", rule)
    return frozenset(rules)


def _rule(rule: AccessRule) -> AclRule:
    return AclRule(
        AclResource(rule.resource_type),
        AclPattern(rule.pattern_type),
        rule.resource_name,
        rule.principal,
        rule.host,
        AclOperation(rule.operation),
        AclPermission(rule.permission_type),
    )


def _quotas(image: MetadataImage) -> Mapping[QuotaEntity, Mapping[str, float]]:
    quotas: dict[QuotaEntity, Mapping[str, float]] = {}
    for names, limits in image.quotas.items():
        try:
            quotas[entity_of(dict(names))] = limits
        except ValueError as error:
            logger.warning("a quota of the cluster has no effect: %s", error)
    return MappingProxyType(quotas)
