"""Looks at a topic, to write a pipeline for it."""

from collections.abc import Sequence
from typing import Any, Final

from cordwood.errors import ConfigError
from cordwood.spark.decoding.json_inference import infer_type
from cordwood.spark.decoding.type_text import parse_schema
from cordwood.spark.jobs.export import sample_records
from cordwood.spark.jobs.pipeline_project import PipelineProject
from cordwood.spark.jobs.row_choice import INFER
from cordwood.spark.jobs.topic_span import plan_span
from cordwood.spark.source.opened_source import absolute_paths, open_source

NONE: Final = "none"


def plan_project(
    paths: Sequence[str], topic: str, home: str, value_schema: str | None
) -> PipelineProject:
    """The project for a topic.

    A changelog is a topic that is compacted, has tombstones, or has no record without a key and
    some key twice.
    """
    if len(paths) != 1:
        raise ConfigError("--at", ",".join(paths), "a pipeline reads one directory or archive")
    span = plan_span(paths, [topic])
    pairs = list(sample_records(span)) if span.count else []
    kind: Any = None
    if value_schema == INFER:
        kind = infer_type(value for _, value in pairs)
        kind = kind if kind.num_fields else None
    elif value_schema not in {None, NONE}:
        kind = parse_schema(value_schema or "")
    keys = [key for key, _ in pairs]
    has_tombstones = any(value is None for _, value in pairs)
    is_changelog = (
        has_tombstones
        or (bool(keys) and None not in keys and len(set(keys)) < len(keys))
        or _is_compacted(paths, topic)
    )
    return PipelineProject(
        topic=topic, data=span.paths[0], home=home, type=kind, is_changelog=is_changelog
    )


def _is_compacted(paths: Sequence[str], topic: str) -> bool:
    with open_source(absolute_paths(paths), lambda name, _: name == topic) as source:
        return source.look()[topic].is_compacted
