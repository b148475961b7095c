"""The plan of a batch query: its boundaries as offsets, what `where` leaves, and the tasks."""

from collections.abc import Sequence

from cordwood.clock import SystemClock
from cordwood.errors import ConfigError
from cordwood.spark.source.opened_source import Wants, open_source
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.source.source_plan import (
    OffsetResolver,
    Span,
    Surveyed,
    check_named,
    guard_ranges,
    plan_ranges,
    pruned,
    survey,
)
from cordwood.spark.where.condition import ALWAYS, NEVER, within_partition


def plan_batch(options: SourceOptions, paths: Sequence[str]) -> list[OffsetRange]:
    """The tasks that read what the options ask for, as the log is now."""
    with open_source(paths, _wants(options)) as source:
        found = survey(source, options.isolation)
        check_named(source, options.topics, found)
        spans = _spans(options, found)
        return guard_ranges(
            found, plan_ranges(found, pruned(found, spans, options), options), spans
        )


def _wants(options: SourceOptions) -> Wants:
    """The partitions to open: of named topics only those that the condition leaves."""
    topics, where = options.topics, options.where
    names_partitions = options.starting.named is not None or options.ending.named is not None
    if where == ALWAYS or names_partitions or not topics.names:
        return topics.wants
    return lambda topic, partition: (
        topics.wants(topic, partition) and within_partition(where, partition) != NEVER
    )


def _spans(options: SourceOptions, found: Surveyed) -> list[Span]:
    """The offsets between the boundaries, by partition."""
    resolver = OffsetResolver(options, found, SystemClock().now_ms())
    starts, stops = resolver.starts(), resolver.stops()
    spans: list[Span] = []
    for partition in found.partitions:
        start, stop = starts[partition], stops[partition]
        if found.log(partition).start_offset < stop < start:
            name = f"{partition[0]}-{partition[1]}"
            raise ConfigError(
                options.ending.option,
                stop,
                f"is before {options.starting.option}, which is offset {start} of {name}",
            )
        if start < stop:
            spans.append((partition, start, stop))
    return spans
