"""A topic that audit lines are appended to, so that consumers can watch them."""

import json
from collections.abc import Sequence
from contextlib import suppress

from cordwood.errors import TopicExistsError, UnknownTopicError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.log.topics.topic import Topic


class AuditTopic:
    """Appends lines as records, keyed by principal. Belongs to the thread of the audit log.

    The topic is created if it is missing. Appends go past the handlers of clients, so they cause
    no events of their own.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def write(self, lines: Sequence[str]) -> None:
        self._topic().append_many([(_key(line), line.encode()) for line in lines])

    def close(self) -> None:
        return

    def _topic(self) -> Topic[PartitionLog]:
        with suppress(UnknownTopicError):
            return self._store.topic(self._name)
        with suppress(TopicExistsError):  # it was created meanwhile
            return self._store.create_topic(self._name)
        return self._store.topic(self._name)


def _key(line: str) -> bytes:
    """The principal. A token may name one that UTF-8 cannot write; other lines must not suffer."""
    principal: str = json.loads(line)["principal"]
    return principal.encode(errors="backslashreplace")
