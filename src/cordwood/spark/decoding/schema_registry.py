"""A schema registry by its URL, in Confluent's API: only what a reader needs.

Only the driver asks it: tasks get the schemas that they need, so executors need neither a way to
the registry nor its password. An id belongs to one schema for ever, so answers are kept.

An error that may pass is asked about again, a few times: a registry that restarts must not end a
job that follows a topic. Only the registry's own word makes an id unknown, because values with an
unknown id are rejected: a 404 of something else, as of a proxy, is an error.
"""

import base64
import http.client
import json
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, Final

from cordwood.errors import ConfigError, CordwoodError
from cordwood.quantities import MIB
from cordwood.value_class import dataclass

_TIMEOUT_S: Final = 30.0
_ANSWER_S: Final = 60.0  # for a whole answer: each byte of it has the timeout
_PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0)
_MAY_PASS: Final = frozenset({429, 500, 502, 503, 504})
_UNKNOWN: Final = frozenset({40401, 40402, 40403})  # subject, version, schema
_ANSWER_BYTES_MAX: Final = 8 * MIB
_REFERENCES_MAX: Final = 200
_VERSIONS_MAX: Final = 1000
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema with all it refers to: (name, text) of each, those that others need first."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "references": list(self.references)}

    @classmethod
    def from_json(cls, found: Any) -> "RegisteredSchema":
        references = tuple((str(name), str(text)) for name, text in found["references"])
        return cls(kind=str(found["kind"]), text=str(found["text"]), references=references)


class _MayPassError(Exception):
    """A failure that may be over at the next attempt."""


class _CarefulRedirects(urllib.request.HTTPRedirectHandler):
    """Does not send user and password to another host, or in the clear."""

    def redirect_request(self, *given: Any) -> urllib.request.Request | None:
        before: urllib.request.Request = given[0]
        after = super().redirect_request(*given)
        is_same = after is not None and after.host == before.host
        if after is not None and not (is_same and after.type in {before.type, "https"}):
            after.remove_header("Authorization")
        return after


class SchemaRegistry:
    """A client. For one thread. `url` may contain user and password."""

    def __init__(
        self, url: str, *, token: str | None = None, pause: Callable[[float], None] = time.sleep
    ) -> None:
        rule = "must be a URL, as http://host:8081"
        try:
            parts = urllib.parse.urlsplit(url)
            number = parts.port
        except ValueError as error:
            raise ConfigError("registry", self._hidden(url), f"{rule}: {error}") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError("registry", self._hidden(url), rule)
        host = parts.hostname if ":" not in parts.hostname else f"[{parts.hostname}]"
        port = f":{number}" if number else ""
        self._pause = pause
        self._opener = urllib.request.build_opener(_CarefulRedirects())
        self.url = f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"
        self._headers = {"Accept": _ACCEPT}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        elif parts.username is not None:
            user = urllib.parse.unquote(parts.username)
            password = urllib.parse.unquote(parts.password or "")
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        self._known: dict[int, RegisteredSchema | None] = {}

    @staticmethod
    def _hidden(url: str) -> str:
        return re.sub(r"//[^@/]*@", "//***@", url)

    def schema(self, number: int) -> RegisteredSchema | None:
        """The schema with an id; None if the registry does not know it."""
        if number not in self._known:
            found = self._schema(f"/schemas/ids/{number}")
            self._known[number] = None if found is None else self._with_references(found)
        return self._known[number]

    def subject_ids(self, subject: str) -> list[int]:
        """The ids of all versions of a subject, oldest first."""
        quoted = urllib.parse.quote(subject, safe="")
        versions = self._get(f"/subjects/{quoted}/versions")
        if versions is None:
            raise ConfigError("subject", subject, f"is unknown to the registry {self.url}")
        if not isinstance(versions, list) or not all(isinstance(v, int) for v in versions):
            raise self._odd(f"/subjects/{quoted}/versions")
        ids: list[int] = []
        for version in versions[-_VERSIONS_MAX:]:
            path = f"/subjects/{quoted}/versions/{version}"
            found = self._get(path)
            if found is None:
                continue
            if not isinstance(found, dict) or not isinstance(found.get("id"), int):
                raise self._odd(path)
            ids.append(found["id"])
        return ids

    def _odd(self, path: str) -> CordwoodError:
        return CordwoodError(
            f"{self.url}{path} answers, but not as a schema registry does; check the URL"
        )

    def _with_references(self, found: Any) -> RegisteredSchema:
        references: dict[str, str] = {}
        self._gather(found, references, 0)
        kind, text = found.get("schemaType", "AVRO"), found["schema"]
        return RegisteredSchema(
            kind=str(kind), text=str(text), references=tuple(references.items())
        )

    def _gather(self, found: Any, references: dict[str, str], depth: int) -> None:
        for reference in found.get("references") or ():
            name = str(reference["name"])
            if name in references:
                continue
            if len(references) >= _REFERENCES_MAX or depth > _REFERENCES_MAX:
                raise CordwoodError(f"a schema of {self.url} has too many references")
            subject = urllib.parse.quote(str(reference["subject"]), safe="")
            other = self._schema(f"/subjects/{subject}/versions/{int(reference['version'])}")
            if other is None:
                raise CordwoodError(f"{self.url} lacks the schema {name}, which another refers to")
            self._gather(other, references, depth + 1)
            references[name] = str(other["schema"])

    def _schema(self, path: str) -> dict[str, Any] | None:
        """The answer, which has a schema; None if there is none."""
        found = self._get(path)
        if found is None:
            return None
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise self._odd(path)
        references = found.get("references") or []
        if not isinstance(references, list) or not all(map(_is_reference, references)):
            raise self._odd(path)
        return found

    def _get(self, path: str) -> Any:
        """The answer; None if there is no such thing. Raises `CordwoodError` for all else."""
        pauses = iter(_PAUSES_S)
        while True:
            try:
                return self._ask(path)
            except _MayPassError as error:
                pause_s = next(pauses, None)
                if pause_s is None:
                    raise CordwoodError(str(error)) from error
                self._pause(pause_s)

    def _ask(self, path: str) -> Any:
        request = urllib.request.Request(self.url + path, headers=self._headers)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                return json.loads(self._read(answer, path))
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404 and self._says_unknown(error):
                    return None
                kind: type[Exception] = CordwoodError
                if error.code in _MAY_PASS:
                    kind = _MayPassError
                hint = "; check the URL" if error.code == 404 else ""
                raise kind(
                    f"the registry {self.url} answers {error.code} to {path}{hint}"
                ) from error
        except (ValueError, RecursionError) as error:
            raise CordwoodError(f"the registry {self.url} cannot be read: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            is_final = isinstance(reason, ssl.SSLCertVerificationError)
            kind = CordwoodError if is_final else _MayPassError
            raise kind(f"the registry {self.url} cannot be read: {reason}") from error

    def _read(self, answer: Any, path: str) -> bytes:
        """The whole answer, bounded in size and time."""
        ends_s = time.monotonic() + _ANSWER_S
        data = bytearray()
        while part := answer.read1(1 << 16):
            data += part
            if len(data) > _ANSWER_BYTES_MAX:
                raise CordwoodError(f"{self.url}{path} answers with more than 8 MiB")
            if time.monotonic() > ends_s:
                raise _MayPassError(f"{self.url}{path} answers for longer than {_ANSWER_S:g} s")
        return bytes(data)

    @staticmethod
    def _says_unknown(error: urllib.error.HTTPError) -> bool:
        """Whether a registry says so, and not something before it."""
        try:
            found = json.loads(error.read(1 << 16))
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            return False
        return isinstance(found, dict) and found.get("error_code") in _UNKNOWN


def _is_reference(found: object) -> bool:
    if not isinstance(found, dict):
        return False
    is_named = isinstance(found.get("name"), str) and isinstance(found.get("subject"), str)
    return is_named and isinstance(found.get("version"), int)
