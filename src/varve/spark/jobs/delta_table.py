"""A Delta table, through `deltalake`: no JVM and no jar.

Tasks write the files, the driver commits them as one transaction. Offsets are application
transactions, one for each partition, whose version is the next offset: that is what Delta has
them for, and they outlive the log's clean-up. The ids of topics and the table's settings are
among its properties.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from varve.errors import ConfigError, TableChangedError
from varve.spark.jobs.lake_table import TableState, WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable as Delta

_PREFIX: Final = "varve."
_TOPIC: Final = "varve.topic."
_PARTITIONS: Final = "varve.partitions."
_SETTING: Final = "varve.setting."
_DIRECTORY: Final = "varve"
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")


class DeltaLakeTable:
    """See the head of this module, and `LakeTable`. `storage` are options of the object store."""

    def __init__(self, url: str, *, storage: Mapping[str, str] | None = None) -> None:
        self.url = url.rstrip("/")
        self._storage = dict(storage or {}) or None
        self._table: Delta | None = None

    @property
    def name(self) -> str:
        return self.url

    def load(self) -> TableState | None:
        delta = _deltalake()
        if not delta.DeltaTable.is_deltatable(self.url, storage_options=self._storage):
            self._table = None
            return None
        self._table = delta.DeltaTable(self.url, storage_options=self._storage)
        return self._state(self._table)

    def _state(self, table: "Delta") -> TableState:
        properties = table.metadata().configuration
        ids = {
            name.removeprefix(_TOPIC): value
            for name, value in properties.items()
            if name.startswith(_TOPIC)
        }
        offsets = {}
        for topic, topic_id in ids.items():
            for number in range(int(properties[_PARTITIONS + topic])):
                found = table.transaction_version(_application(topic, topic_id, number))
                if found is not None:
                    offsets[topic, number] = found
        return TableState(
            offsets=offsets,
            topic_ids={topic: value for topic, value in ids.items() if value},
            settings={
                name.removeprefix(_SETTING): value
                for name, value in properties.items()
                if name.startswith(_SETTING)
            },
        )

    def staging(self, run_id: str) -> str:
        return f"{self.url}/{_DIRECTORY}/{run_id}"

    def files(self) -> list[str]:
        return [] if self._table is None else self._table.file_uris()

    def commit(
        self,
        state: TableState,
        schema: "pa.Schema",
        *,
        run_id: str,
        added: Sequence[WrittenFile],
        removed: Sequence[str] = (),
    ) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        now_ms = time.time_ns() // 1_000_000
        try:
            table = self._prepared(state, schema)
            actions: list[AddAction | RemoveAction] = [
                AddAction(
                    path=f"{_DIRECTORY}/{run_id}/{file.name}",
                    size=file.size,
                    partition_values={},
                    modification_time=now_ms,
                    data_change=True,
                    stats=json.dumps({"numRecords": file.rows}),
                )
                for file in added
            ]
            actions += [
                RemoveAction(self._relative(path), data_change=True, deletion_timestamp=now_ms)
                for path in removed
            ]
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                commit_properties=CommitProperties(
                    custom_metadata={"varve.state": state.render()},
                    max_commit_retries=0,  # who was faster may have written the same offsets
                    app_transactions=[
                        Transaction(
                            _application(topic, state.topic_ids.get(topic, ""), number), offset
                        )
                        for (topic, number), offset in sorted(state.offsets.items())
                    ],
                ),
            )
        except CommitFailedError as error:
            raise TableChangedError(self.url, str(error)) from error
        self.load()

    def _prepared(self, state: TableState, schema: "pa.Schema") -> "Delta":
        """The table, made or told of topics and partitions that are new to it."""
        properties = _properties(state)
        if self._table is None:
            return self._create(schema, properties)
        table = self._table
        known = table.metadata().configuration
        changed = {name: text for name, text in properties.items() if known.get(name) != text}
        if changed:
            before = self._state(table)
            table.alter.set_table_properties(changed, raise_if_not_exists=False)
            table.update_incremental()
            if self._state(table).offsets != before.offsets:
                raise TableChangedError(self.url, "another run was faster")
        return table

    def _create(self, schema: "pa.Schema", properties: Mapping[str, str]) -> "Delta":
        delta = _deltalake()
        try:
            return delta.DeltaTable.create(  # type: ignore[no-any-return]
                self.url,
                schema,
                mode="error",
                configuration=dict(properties),
                storage_options=self._storage,
                raise_if_key_not_exists=False,
            )
        except delta.exceptions.DeltaError as error:
            raise TableChangedError(self.url, str(error)) from error

    def _relative(self, path: str) -> str:
        found = path.rpartition(f"/{_DIRECTORY}/")[2]
        return f"{_DIRECTORY}/{found}"

    def discard(self, run_id: str) -> None:
        """Nothing: files that no commit names are not in the table, and its vacuum removes them."""


def _properties(state: TableState) -> dict[str, str]:
    topics = {topic for topic, _ in state.offsets}
    counts = {t: max(n for topic, n in state.offsets if topic == t) + 1 for t in topics}
    return {
        **{_TOPIC + topic: state.topic_ids.get(topic, "") for topic in topics},
        **{_PARTITIONS + topic: str(count) for topic, count in counts.items()},
        **{_SETTING + name: text for name, text in state.settings.items()},
    }


def _application(topic: str, topic_id: str, number: int) -> str:
    return f"varve/{topic}/{topic_id}/{number}"


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        raise ConfigError(
            "format", "delta", "needs the package deltalake: pip install 'varve[lake]'"
        ) from error
    return deltalake
