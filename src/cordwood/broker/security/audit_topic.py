"""A topic that audit lines are appended to, so that consumers can watch them."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from cordwood.errors import TopicExistsError, UnknownTopicError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.log.topics.topic import Topic

AUDIT_PURPOSE: Final = "audit"  # of connections between brokers, in their client id
_CLIENT_ID: Final = re.compile(rf"broker-\d{{1,10}}-{AUDIT_PURPOSE}")


def is_audit_client(client_id: str | None) -> bool:
    """Whether a client calls itself a broker that writes audit lines. Its rights count besides."""
    return client_id is not None and _CLIENT_ID.fullmatch(client_id) is not None


class AuditTopic:
    """Appends lines as records, keyed by principal. Belongs to the thread of the audit log.

    The topic is created if it is missing. Appends go past the handlers of clients, so they cause
    no events of their own.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def write(self, lines: Sequence[str]) -> None:
        self._topic().append_many([(audit_key(line), line.encode()) for line in lines])

    def close(self) -> None:
        return

    def _topic(self) -> Topic[PartitionLog]:
        with suppress(UnknownTopicError):
            return self._store.topic(self._name)
        with suppress(TopicExistsError):  # it was created meanwhile
            return self._store.create_topic(self._name)
        return self._store.topic(self._name)


def audit_key(line: str) -> bytes:
    """The principal. A token may name one that UTF-8 cannot write; other lines must not suffer."""
    principal: str = json.loads(line)["principal"]
    return principal.encode(errors="backslashreplace")
