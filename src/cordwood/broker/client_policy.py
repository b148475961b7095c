"""What clients may not configure, although the operator may.

    archive.url       the broker writes there with its own rights and keys, so a client may only
                      choose a place below one of `archive.url.prefixes`
    internal topics   their contents are the groups; only keys that lose nothing may be changed,
                      or taken back to their defaults
    closed topics     the audit log; likewise

A value that a topic has already may always be set again.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Final
from urllib.parse import unquote, urlsplit

from cordwood.broker.error_codes import ErrorCode, RefusedError
from cordwood.format.file_names import INTERNAL_TOPICS

_ARCHIVE_URL: Final = "archive.url"
_INTERNAL_KEYS: Final = frozenset(
    {
        "segment.bytes",
        "segment.ms",
        "segment.jitter.ms",
        "index.interval.bytes",
        "file.delete.delay.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "max.compaction.lag.ms",
        "compression.type",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)


def check_client_config(
    topic: str,
    changes: Mapping[str, str | None],
    *,
    now: Mapping[str, str],
    archive_prefixes: Sequence[str],
    closed_topics: Set[str] = frozenset(),
) -> None:
    """Raise `RefusedError` if a client may not make these changes; None: back to the default.

    `now` has the values in effect, as text.
    """
    is_kept = topic in INTERNAL_TOPICS or topic in closed_topics
    for key, value in changes.items():
        if value is not None and value == now.get(key):
            continue
        if is_kept and key not in _INTERNAL_KEYS:
            raise RefusedError(
                ErrorCode.policy_violation, f"{topic} is internal: clients cannot change {key}"
            )
        if key == _ARCHIVE_URL and value and not _is_allowed(value, archive_prefixes):
            raise RefusedError(
                ErrorCode.policy_violation,
                "this broker does not allow clients to archive there; its operator can set "
                "archive.url.prefixes",
            )


def _is_allowed(url: str, prefixes: Sequence[str]) -> bool:
    return any(is_below(url, prefix) for prefix in prefixes)


def is_below(url: str, prefix: str) -> bool:
    """Whether `url` is `prefix` or a place below it, on the same server with the same options."""
    try:
        there, allowed = urlsplit(url), urlsplit(prefix)
    except ValueError:
        return False
    if (there.scheme, there.netloc, there.query) != (allowed.scheme, allowed.netloc, allowed.query):
        return False
    parts, roots = _path_parts(there.path), _path_parts(allowed.path)
    is_plain = not there.fragment and not any(part in {".", ".."} for part in parts)
    return is_plain and parts[: len(roots)] == roots


def _path_parts(path: str) -> list[str]:
    return [part for part in unquote(path).split("/") if part]
