"""The topic that a job writes to, and the name under which it writes once.

A write to a store is published under an application's name and a number; one that was published
before is skipped. A job that writes as a whole uses its own name and the number 0.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cordwood.errors import ConfigError
from cordwood.log.publishing.publication_ledger import read_publications
from cordwood.log.rules.isolation import READ_UNCOMMITTED
from cordwood.spark.jobs.topic_span import plan_span
from cordwood.spark.sink.partitioner import Partitioner
from cordwood.spark.source.opened_source import absolute_paths
from cordwood.spark.source.topic_choice import TopicPartition
from cordwood.spark.tables.lake_table import TableState
from cordwood.storage.files import RealFileSystem
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBER = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    """A topic of a store. With `partitions` it is created if it is missing."""

    paths: tuple[str, ...]
    topic: str
    partitions: int | None = None
    partitioner: Partitioner = Partitioner.MURMUR2
    compression: str | None = None

    def options(self) -> dict[str, str]:
        """The options of the sink for this topic."""
        places = absolute_paths(self.paths)
        found = {"topic": self.topic, "path": places[0], "partitioner": self.partitioner.value}
        if len(places) > 1:
            found["paths"] = json.dumps(list(places[1:]))
        if self.partitions is not None:
            found["partitions"] = str(self.partitions)
        if self.compression is not None:
            found["compression"] = self.compression
        return found

    def write(self, df: "DataFrame", *, application: str) -> None:
        """Append all rows as one publication, unless this name was published before."""
        (
            df.write.format("cordwood")
            .mode("append")
            .options(**self.options())
            .option("applicationId", application)
            .option("batchNumber", _NUMBER)
            .save()
        )

    def was_written(self, application: str) -> bool:
        """Whether a write of that name has been published."""
        found = read_publications(RealFileSystem(), absolute_paths(self.paths))
        last = found.last_of(application)
        return last is not None and last >= _NUMBER

    def check(self) -> None:
        """Raise `ConfigError` if the topic is missing and would not be created."""
        if self.partitions is None and not self.ends():
            raise ConfigError(
                "to topic", self.topic, "does not exist; create it, or say how many partitions"
            )

    def ends(self) -> dict[TopicPartition, int]:
        """The ends of the topic's partitions; empty if it does not exist yet."""
        try:
            span = plan_span(self.paths, [self.topic], TableState(), isolation=READ_UNCOMMITTED)
        except ConfigError:
            return {}
        return dict(span.stops)

    def grown_since(self, before: Mapping[TopicPartition, int]) -> tuple[dict[str, Any], ...]:
        """A row for each partition, with its end before and after."""
        return tuple(
            {
                "topic": topic,
                "partition": number,
                "from": before.get((topic, number), 0),
                "up_to": end,
            }
            for (topic, number), end in sorted(self.ends().items())
        )


def name_of_run(job: str, facts: Mapping[str, Any]) -> str:
    """A name that is the same for equal requests."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return f"{job} {hashlib.sha256(text.encode()).hexdigest()[:32]}"
