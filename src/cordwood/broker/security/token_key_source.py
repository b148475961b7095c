"""The keys of an issuer of tokens: fetched in the background, kept while a fetch fails.

A login never waits for a fetch. A token whose key is unknown is refused and causes a fetch, so the
next attempt of the client succeeds if the issuer has a new key.
"""

import logging
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import IO, Any, Final

from cordwood.broker.config.sasl_config import SaslKeys
from cordwood.errors import ConfigError, FormatError, LimitExceededError
from cordwood.quantities import MIB
from cordwood.security.sasl.token_keys import KeySet, parse_key_set
from cordwood.storage.files import RealFileSystem, read_whole
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

_URL_KEY: Final = "sasl.oauthbearer.jwks.endpoint.url"
_BYTES_MAX: Final = 1 * MIB
_READ_BYTES: Final = 64 * 1024
_SILENCE_S_MAX: Final = 10.0  # of the issuer's server
_FETCH_S_MAX: Final = 30.0
_EARLY_FETCH_S_MIN: Final = 10.0  # between fetches because of unknown keys
_FAILURES: Final = (OSError, HTTPException, FormatError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAddress:
    """Where the keys are, and how often they are fetched."""

    url: str
    refresh_s: float
    backoff_s: float
    backoff_s_max: float

    @classmethod
    def of_config(cls, keys: SaslKeys) -> "KeyAddress":
        """Raises `ConfigError` for a URL that is neither https nor a file."""
        url = keys.sasl_oauthbearer_jwks_endpoint_url or ""
        parts = urllib.parse.urlsplit(url)
        is_file = (
            parts.scheme == "file"
            and parts.hostname in {None, "localhost"}
            and parts.path.startswith("/")
        )
        if not (is_file or (parts.scheme == "https" and parts.hostname)):
            raise ConfigError(
                _URL_KEY,
                url,
                "must be an https URL, or a file URL with a whole path, such as "
                "file:///etc/cordwood/jwks.json",
            )
        return cls(
            url=url,
            refresh_s=keys.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000,
            backoff_s=keys.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1000,
            backoff_s_max=keys.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1000,
        )

    @property
    def is_file(self) -> bool:
        return self.url.startswith("file:")

    def pause_s(self, failures: int) -> float:
        """How long to wait after so many fetches in a row that failed."""
        if not failures:
            return self.refresh_s
        doubled: float = self.backoff_s * 2 ** min(failures - 1, 32)
        return min(doubled, max(self.backoff_s_max, self.backoff_s))


class TokenKeySource:
    """The keys at one address. Any thread may call it."""

    def __init__(
        self,
        address: KeyAddress,
        *,
        fetch: Callable[[str], bytes] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `ConfigError` for a file that has no keys."""
        self._address = address
        self._fetch = fetch or fetch_url
        self._now_s = now_s
        self._keys = KeySet()
        self.fetch_count = 0  # that have ended, well or not
        self._failures = 0
        self._fetched_s = float("-inf")
        self._wake = threading.Event()
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        if address.is_file:
            try:
                self._keys = parse_key_set(self._fetch(address.url))
            except _FAILURES as error:
                raise ConfigError(_URL_KEY, address.url, f"cannot be used: {error}") from error

    @property
    def keys(self) -> KeySet:
        """The keys of the last fetch that succeeded."""
        return self._keys

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="cordwood-jwks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The thread ends soon; a fetch that is under way is not waited for."""
        self._is_stopped = True
        self._wake.set()

    def missed(self) -> None:
        """A token had an unknown key: fetch soon, unless that was done a moment ago."""
        if self._now_s() - self._fetched_s >= _EARLY_FETCH_S_MIN:
            self._wake.set()

    def refresh(self) -> float:
        """Fetch once; return how long to wait before the next time."""
        self._fetched_s = self._now_s()
        pause_s = self._refresh()
        self.fetch_count += 1
        return pause_s

    def _refresh(self) -> float:
        url = self._address.url
        try:
            self._keys = parse_key_set(self._fetch(url))
        except _FAILURES as error:
            self._failures += 1
            pause_s = self._address.pause_s(self._failures)
            logger.warning(
                "%s: fetching the keys of tokens failed (%d in a row), next in %.1f s: %s",
                url,
                self._failures,
                pause_s,
                error,
            )
            return pause_s
        if self._failures:
            logger.info("%s: %d keys of tokens fetched", url, len(self._keys.keys))
        self._failures = 0
        return self._address.pause_s(0)

    def _run(self) -> None:
        while not self._is_stopped:
            self._wake.clear()
            try:
                pause_s = self.refresh()
            except Exception:  # a bug of ours or of a library: go on with the keys that there are
                logger.exception("%s: fetching the keys of tokens failed", self._address.url)
                pause_s = self._address.backoff_s_max
            if not self._is_stopped:
                self._wake.wait(min(pause_s, threading.TIMEOUT_MAX))


class _OnlyEncrypted(urllib.request.HTTPRedirectHandler):
    """Does not follow an https server to where everybody could answer instead of it."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme != "https":
            raise urllib.error.HTTPError(newurl, code, "redirects to no https URL", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch_url(url: str) -> bytes:
    """The content of an https or a file URL. Raises `OSError` or `FormatError`."""
    if url.startswith("file:"):
        path = urllib.request.url2pathname(urllib.parse.urlsplit(url).path)
        try:
            return read_whole(RealFileSystem(), path, limit=_BYTES_MAX)  # never waits for a pipe
        except LimitExceededError as error:
            raise LimitExceededError(
                f"key set in {path}", size=os.path.getsize(path), limit=_BYTES_MAX
            ) from error
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    opener = urllib.request.build_opener(_OnlyEncrypted)
    deadline_s = time.monotonic() + _FETCH_S_MAX
    content = b""
    with opener.open(request, timeout=_SILENCE_S_MAX) as answer:
        while len(content) <= _BYTES_MAX and (part := answer.read1(_READ_BYTES)):
            content += part
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the answer takes longer than {_FETCH_S_MAX:.0f} s")
    if len(content) > _BYTES_MAX:
        raise LimitExceededError("key set", size=len(content), limit=_BYTES_MAX)
    return content
