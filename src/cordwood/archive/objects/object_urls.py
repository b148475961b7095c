"""URLs of archives: which are valid, and how they are shown."""

from typing import Final
from urllib.parse import urlsplit, urlunsplit

from cordwood.errors import ConfigError

LOCAL_SCHEME: Final = "file"


def shown_url(url: str) -> str:
    """The URL without user, password and query, for messages and files."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    path = parts.path.rstrip("/") or "/"
    return urlunsplit((parts.scheme, host, path, "", ""))


def check_url(url: str, *, key: str = "archive.url") -> None:
    """Raise `ConfigError` if no archive can have this URL."""
    parts = urlsplit(url)
    if not parts.scheme or ("://" not in url and parts.scheme != LOCAL_SCHEME):
        raise ConfigError(key, url, "must be a URL, such as file:///dir or s3://bucket/dir")
    if parts.scheme == LOCAL_SCHEME:
        if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
            raise ConfigError(key, url, "must name an absolute path, as file:///dir does")
    elif not parts.netloc:
        raise ConfigError(key, shown_url(url), f"must name a bucket: {parts.scheme}://b/p")


def endpoint(url: str) -> str:
    """Where the requests for a URL go: the same text for the same server and options."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, "", parts.query, ""))
