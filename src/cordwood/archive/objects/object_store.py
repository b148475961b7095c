"""Object stores, chosen by URL.

    file:///srv/archive         a local or mounted directory
    s3://bucket/prefix          S3 and compatible stores, through pyarrow
    gs://  abfs://  hdfs://     other file systems of pyarrow, untested

What each of them promises is in `object_port`.
"""

from urllib.parse import unquote, urlsplit

from cordwood.archive.objects.arrow_objects import ArrowObjects
from cordwood.archive.objects.local_objects import LocalObjects
from cordwood.archive.objects.object_port import (
    PIECE_BYTES,
    ObjectInfo,
    ObjectStore,
    copy_into,
    get,
)
from cordwood.archive.objects.object_urls import LOCAL_SCHEME, check_url, endpoint, shown_url
from cordwood.archive.objects.s3_conditions import why_no_conditions
from cordwood.storage.files import FileSystem

__all__ = [
    "PIECE_BYTES",
    "ArrowObjects",
    "LocalObjects",
    "ObjectInfo",
    "ObjectStore",
    "check_url",
    "copy_into",
    "endpoint",
    "get",
    "open_object_store",
    "shown_url",
    "why_unconditional",
]


def why_unconditional(url: str) -> str | None:
    """Why brokers of a cluster cannot archive to `url` together; None if they can."""
    return None if urlsplit(url).scheme == LOCAL_SCHEME else why_no_conditions(url)


def open_object_store(url: str, fs: FileSystem) -> ObjectStore:
    """The object store of a URL. Does not connect yet, so an unreachable store is not an error.

    Options of S3 belong in the URL's query as pyarrow defines them (``region``, ``scheme``,
    ``endpoint_override``), or in AWS's environment variables, and credentials only there.
    """
    check_url(url)
    parts = urlsplit(url)
    if parts.scheme == LOCAL_SCHEME:
        return LocalObjects(fs, unquote(parts.path).rstrip("/") or "/")
    return ArrowObjects(url)
