"""Where settings come from: files, environment variables and flags, as assignments.

file          cordwood.toml, or a Java properties file such as Kafka's server.properties
environment   CORDWOOD_LOG_RETENTION_MS is log.retention.ms; CORDWOOD_CONFIG is the file
flags         --port 9092, --set log.retention.ms=7d
data          what `cordwood serve --secure` wrote into the first data directory
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Final, NamedTuple

from cordwood.errors import HIDDEN, ConfigError, FormatError, is_secret_key
from cordwood.format.file_names import SECURITY_FOLDER
from cordwood.format.small_files.meta_properties import parse_properties

ENVIRONMENT_PREFIX: Final = "CORDWOOD_"
CONFIG_VARIABLE: Final = "CORDWOOD_CONFIG"
DEFAULT_FILE: Final = "cordwood.toml"
SECURED_FILE: Final = "broker.properties"  # in SECURITY_FOLDER of the first data directory

_FILE_BYTES_MAX: Final = 1024 * 1024
# Variables of other parts of the project, and those that Kubernetes sets in every container for
# a service named "cordwood", such as CORDWOOD_PORT=tcp://10.0.0.1:9092.
_OTHER_VARIABLES: Final = re.compile(
    r"CORDWOOD_(AT|CONFIG|CC|PYTHON|KAFKA_LIBS|SERVICE_.*|PORT_[0-9]+_(TCP|UDP).*"
    r"|TLS|CA|CERT|CERT_KEY|USER|PASSWORD|PASSWORD_FILE|KEY_PASSWORD|MECHANISM|TOKEN_FILE"
    r"|COMMAND_CONFIG|KERNELS|WHEEL_PYTHONS)"
)
_SERVICE_LINK: Final = re.compile(r"(tcp|udp)://.*")


_COLLECTOR_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_COLLECTOR_OFF: Final = "OTEL_SDK_DISABLED"
_COLLECTOR_KEY: Final = "otel.endpoint"


class Assignment(NamedTuple):
    """A key, its value and its source: ``cordwood.toml``, ``CORDWOOD_PORT``, ``--port``.

    `written` is the value with its references to secrets, if it has some.
    """

    name: str
    value: object
    source: str
    written: str | None = None

    def __repr__(self) -> str:
        value = HIDDEN if is_secret_key(self.name) else self.shown
        return f"<{self.name} = {value} from {self.source}>"

    @property
    def shown(self) -> object:
        """The value as errors may show it."""
        return self.value if self.written is None else self.written


def variable_name(key: str) -> str:
    """The environment variable of a key: ``log.retention.ms`` is CORDWOOD_LOG_RETENTION_MS."""
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_")


def environment_assignments(
    variables: Mapping[str, str], known: Iterable[str]
) -> Iterator[Assignment]:
    """The variables that begin with the prefix; `known` are the names of all keys."""
    names = {variable_name(name): name for name in known}
    yield from _collector(variables, names)
    for variable in sorted(variables):
        if not variable.startswith(ENVIRONMENT_PREFIX) or _OTHER_VARIABLES.fullmatch(variable):
            continue
        value = variables[variable]
        if _SERVICE_LINK.fullmatch(value) and variable == variable_name("port"):
            continue
        # An unknown name becomes the key it would be, and is refused like any unknown key.
        guess = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
        yield Assignment(names.get(variable, guess), value, variable)


def _collector(variables: Mapping[str, str], names: Mapping[str, str]) -> Iterator[Assignment]:
    """OpenTelemetry's own variable names the collector, if nothing else does.

    It may be meant for other programs: without the extra `otel` it has no effect.
    """
    address = variables.get(_COLLECTOR_VARIABLE)
    is_off = variables.get(_COLLECTOR_OFF, "").lower() == "true"
    ours = variable_name(_COLLECTOR_KEY)
    if not address or is_off or ours not in names or ours in variables:
        return
    if find_spec("opentelemetry") is not None:
        yield Assignment(_COLLECTOR_KEY, address, _COLLECTOR_VARIABLE)


def flag_assignments(texts: Iterable[str], *, source: str = "--set") -> Iterator[Assignment]:
    """The ``key=value`` texts given to ``--set``."""
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(source, text, "must be key=value")
        yield Assignment(name.strip(), value.strip(), source)


def file_assignments(file: str | os.PathLike[str] | None) -> list[Assignment]:
    if file is None:
        if not os.path.isfile(DEFAULT_FILE):
            return []
        file = DEFAULT_FILE
    path = os.fspath(file)
    if path.endswith(".toml"):
        values = _read_toml(path)
    elif path.endswith(".properties"):
        values = _read_properties(path)
    else:
        raise ConfigError("config", path, "must end in .toml or .properties")
    return [Assignment(name, value, path) for name, value in values.items()]


def secured_assignments(data_dir: str) -> list[Assignment]:
    """The settings of ``cordwood serve --secure``. They name files beside them."""
    folder = os.path.join(data_dir, SECURITY_FOLDER)
    path = os.path.join(folder, SECURED_FILE)
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return []
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError("config", path, "can be changed by other users; chmod 600 it")
    values = _read_properties(path)
    location = values.get("ssl.keystore.location")
    if isinstance(location, str):
        values["ssl.keystore.location"] = os.path.join(folder, location)
    return [Assignment(name, value, path) for name, value in values.items()]


def _read_text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError("config", path, f"cannot be read: {error.strerror}") from error
    if len(content) > _FILE_BYTES_MAX:
        raise ConfigError("config", path, f"is larger than {_FILE_BYTES_MAX} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("config", path, f"is not UTF-8: {error}") from error


def _read_properties(path: str) -> dict[str, object]:
    try:
        found = parse_properties(_read_text(path))
        return {name: value.strip() for name, value in found.items()}
    except FormatError as error:
        raise ConfigError("config", path, f"is not a properties file: {error}") from error


def _read_toml(path: str) -> dict[str, object]:
    import tomllib  # imported here because most brokers in tests read no file

    try:
        document = tomllib.loads(_read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("config", path, f"is not TOML: {error}") from error
    return dict(_flattened(document, ""))


def _flattened(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    """``[log] retention.ms = 1`` and ``"log.retention.ms" = 1`` are the same."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
