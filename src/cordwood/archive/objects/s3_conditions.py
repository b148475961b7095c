"""Conditional requests to S3: If-Match and If-None-Match. pyarrow does not have them.

Only the manifest of a partition that brokers of a cluster archive together needs them. So they are
made with boto3, an extra: it finds credentials in all the ways that pyarrow does, from the
environment, files and the metadata of the machine.
"""

import importlib
import importlib.util
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from cordwood.errors import LimitExceededError

_S3: Final = "s3"
_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 10.0
_ATTEMPTS: Final = 2
_LOST_RACE: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_MISSING: Final = frozenset({"NoSuchKey", "404"})


def why_no_conditions(url: str) -> str | None:
    """Why an object of `url` cannot be replaced conditionally; None if it can."""
    scheme = urlsplit(url).scheme
    if scheme != _S3:
        return (
            f"{scheme}:// has no conditional put here, which brokers of a cluster need to archive "
            "together; use s3:// or file:///"
        )
    if importlib.util.find_spec("boto3") is None:
        return "conditional puts to S3 need boto3; install it with: pip install 'cordwood[s3]'"
    return None


class S3Conditions:
    """The objects below one URL. Any thread may use it. Connects when first used."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._bucket = parts.netloc.rpartition("@")[2]
        self._root = parts.path.strip("/")
        self._client: Any = _client(url)
        exceptions: Any = importlib.import_module("botocore.exceptions")
        self._errors = (exceptions.BotoCoreError, exceptions.ClientError)

    def get_tagged(self, key: str, *, limit: int) -> tuple[bytes, str]:
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._path(key))
            size = int(answer["ContentLength"])
            if size > limit:
                raise LimitExceededError(f"object {key}", size=size, limit=limit)
            return answer["Body"].read(), str(answer["ETag"])
        except self._errors as error:
            raise _translated(error, key) from error

    def put_if(self, key: str, data: bytes, *, replaces: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if replaces is None else {"IfMatch": replaces}
        try:
            answer = self._client.put_object(
                Bucket=self._bucket, Key=self._path(key), Body=data, **condition
            )
        except self._errors as error:
            translated = _translated(error, key)
            if isinstance(translated, FileNotFoundError):  # what should be replaced is gone
                translated = FileExistsError(f"{key} was removed meanwhile")
            raise translated from error
        return str(answer["ETag"])

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if self._root else key


def _client(url: str) -> Any:
    """With the options that pyarrow takes from the URL."""
    boto3: Any = importlib.import_module("boto3")
    config: Any = importlib.import_module("botocore.config")
    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    keys: dict[str, str] = {}
    if parts.username and parts.password:
        keys = {
            "aws_access_key_id": unquote(parts.username),
            "aws_secret_access_key": unquote(parts.password),
        }
    endpoint = options.get("endpoint_override")
    if endpoint is not None and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    addressing = "virtual" if options.get("force_virtual_addressing") == "true" else "auto"
    return boto3.session.Session().client(
        _S3,
        endpoint_url=endpoint,
        region_name=options.get("region"),
        config=config.Config(
            connect_timeout=_CONNECT_S,
            read_timeout=_ANSWER_S,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
            s3={"addressing_style": "path" if endpoint and addressing == "auto" else addressing},
        ),
        **keys,
    )


def _translated(error: Exception, key: str) -> OSError:
    response: dict[str, Any] = getattr(error, "response", {})
    code = str(response.get("Error", {}).get("Code", ""))
    if code in _MISSING:
        return FileNotFoundError(f"{key} does not exist")
    if code in _LOST_RACE:
        return FileExistsError(f"{key} was replaced meanwhile")
    return OSError(str(error))
