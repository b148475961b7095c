"""The quotas of a target: of a broker, or of a data directory that no broker serves."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Protocol

from cordwood.cli.at.directory_security import open_security
from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, Target
from cordwood.security.quotas.quota_rules import Quotas, altered
from cordwood.security.security_file import SecurityFile
from cordwood.security.security_state import QuotaEntity
from cordwood.value_class import replace


class QuotaAccess(Protocol):
    """Reads and changes quotas."""

    def quotas(self) -> Quotas: ...

    def alter(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        """Set the limits of an entity; None removes one."""
        ...


class _DirectoryQuotas:
    def __init__(self, file: SecurityFile) -> None:
        self._file = file

    def quotas(self) -> Quotas:
        return self._file.state.quotas

    def alter(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        self._file.change(
            lambda state: replace(state, quotas=altered(state.quotas, entity, changes))
        )


@contextlib.contextmanager
def open_quotas(target: Target) -> Iterator[QuotaAccess]:
    """The quotas of the target. A directory is created if missing, and locked meanwhile."""
    match target:
        case DirectoryTarget():
            with open_security(target) as file:
                yield _DirectoryQuotas(file)
        case BrokerTarget():
            from cordwood.cli.at.broker_backend import BrokerBackend
            from cordwood.remote.remote_quotas import RemoteQuotas

            with BrokerBackend(target) as backend:
                yield RemoteQuotas(backend.cluster)
