"""The access rules of a target: of a directory that no broker serves, or of a broker."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from cordwood.cli.at.target import DirectoryTarget, Target
from cordwood.errors import LogError
from cordwood.security.access.acl_filter import RULES_MAX, AclFilter
from cordwood.security.security_file import SecurityFile
from cordwood.security.security_state import AclRule, SecurityState
from cordwood.value_class import replace


class AccessRules(Protocol):
    """Lists and changes rules."""

    def find(self, filters: Iterable[AclFilter]) -> list[AclRule]:
        """The rules that match at least one of the filters, sorted."""
        ...

    def create(self, rules: Sequence[AclRule]) -> None: ...

    def delete(self, rules: Sequence[AclRule]) -> None: ...


@contextlib.contextmanager
def open_rules(target: Target) -> Iterator[AccessRules]:
    if isinstance(target, DirectoryTarget):
        from cordwood.cli.at.directory_security import open_security

        with open_security(target) as file:
            yield _DirectoryRules(file)
        return
    from cordwood.remote.remote_acls import RemoteAcls
    from cordwood.remote.remote_cluster import RemoteCluster

    with RemoteCluster(target.addresses, security=target.security) as cluster:
        yield RemoteAcls(cluster)


class _DirectoryRules:
    def __init__(self, file: SecurityFile) -> None:
        self._file = file

    def find(self, filters: Iterable[AclFilter]) -> list[AclRule]:
        wanted = list(filters)
        return sorted(
            rule for rule in self._file.state.rules if any(one.matches(rule) for one in wanted)
        )

    def create(self, rules: Sequence[AclRule]) -> None:
        self._change(lambda known: known | frozenset(rules))

    def delete(self, rules: Sequence[AclRule]) -> None:
        self._change(lambda known: known - frozenset(rules))

    def _change(self, change: Callable[[frozenset[AclRule]], frozenset[AclRule]]) -> None:
        def changed(state: SecurityState) -> SecurityState:
            rules = change(state.rules)
            if len(rules) > RULES_MAX:
                raise LogError(
                    f"there would be {len(rules)} access rules, but {RULES_MAX} are the limit; "
                    "use prefixed rules"
                )
            return replace(state, rules=rules)

        self._file.change(changed)
