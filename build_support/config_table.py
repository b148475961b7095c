"""Generate the tables of keys, metrics, APIs and clients in the documents, from the code.

``python build_support/config_table.py`` rewrites them, ``--check`` fails if one is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from access_table_rows import access_table  # noqa: E402
from api_table import api_table, unserved_table  # noqa: E402
from client_table import client_table  # noqa: E402
from metric_list import metric_list  # noqa: E402

from cordwood.broker.config.broker_config import BROKER_KEYS  # noqa: E402
from cordwood.broker.config.cluster_config import CLUSTER_KEYS  # noqa: E402
from cordwood.broker.config.sasl_config import SASL_KEYS  # noqa: E402
from cordwood.broker.config.store_config import STORE_KEYS  # noqa: E402
from cordwood.broker.config.topic_defaults import TOPIC_DEFAULTS  # noqa: E402
from cordwood.log.rules.config_key import ConfigKey, ConfigKind  # noqa: E402
from cordwood.log.rules.topic_config import CONFIG_KEYS  # noqa: E402
from cordwood.quantities import INT32_MAX, INT64_MAX  # noqa: E402

CONFIGURATION = ROOT / "docs" / "configuration.md"
BROKER = ROOT / "docs" / "broker.md"
AUTHENTICATION = ROOT / "docs" / "security" / "authentication.md"
PROTOCOL = ROOT / "docs" / "protocol.md"
AUTHORIZATION = ROOT / "docs" / "security" / "authorization.md"

UNITS = {
    ConfigKind.SIZE: {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10},
    ConfigKind.DURATION: {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000},
}


def main(arguments: list[str]) -> int:
    tables: list[tuple[Path, str, Callable[[], str]]] = [
        (CONFIGURATION, "topic keys", lambda: key_table(CONFIG_KEYS)),
        (CONFIGURATION, "topic defaults", topic_default_table),
        (CONFIGURATION, "broker keys", lambda: key_table(BROKER_KEYS)),
        (CONFIGURATION, "store keys", lambda: key_table(STORE_KEYS)),
        (CONFIGURATION, "cluster keys", lambda: key_table(CLUSTER_KEYS)),
        (BROKER, "metrics", metrics_table),
        (AUTHENTICATION, "sasl keys", lambda: key_table(SASL_KEYS)),
        (PROTOCOL, "apis", api_table),
        (PROTOCOL, "unserved apis", unserved_table),
        (PROTOCOL, "clients", client_table),
        (AUTHORIZATION, "access table", access_table),
    ]
    is_outdated = False
    for document, title, table in tables:
        text = document.read_text(encoding="utf-8")
        current = with_table(text, title, table())
        if current == text:
            continue
        if arguments == ["--check"]:
            name = document.relative_to(ROOT)
            print(f"{name}: the table of {title} is out of date; run build_support/config_table.py")
            is_outdated = True
        else:
            document.write_text(current, encoding="utf-8")
    return int(is_outdated)


def with_table(text: str, title: str, table: str) -> str:
    begin = f"<!-- {title}: made by build_support/config_table.py -->\n"
    end = f"<!-- end of {title} -->\n"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return before + begin + table + end + after


def lines(header: str, rows: Iterable[str]) -> str:
    columns = "|---" * (header.count("|") - 1) + "|"
    return "\n".join([header, columns, *rows, ""])


def key_table(keys: Iterable[ConfigKey]) -> str:
    rows = [row(key) for key in keys if not key.is_internal]
    return lines("| key | default | accepts | meaning |", rows)


def row(key: ConfigKey) -> str:
    name = f"`{key.name}`" + (" (ours)" if key.since_cordwood else "")
    default = f"`{key.default_text}`{in_units(key)}" if key.default_text else "empty"
    accepts = key.rule.removeprefix("must be ").replace("|", "\\|")
    accepts = accepts.replace(str(INT32_MAX), "2^31-1")
    return f"| {name} | {default} | {accepts} | {key.doc} |"


def in_units(key: ConfigKey) -> str:
    """A large default in the largest unit in which it is a whole number."""
    if key.default_text == str(INT64_MAX):
        return " (2^63-1)"
    units = UNITS.get(key.kind, {})
    for unit, factor in units.items():
        number, rest = divmod(int(key.default_text), factor)
        if number > 0 and rest == 0:
            return f" ({number} {unit})"
    return ""


def topic_default_table() -> str:
    rows = [f"| `{default.key.name}` | `{default.topic_key.name}` |" for default in TOPIC_DEFAULTS]
    return lines("| broker key | topic key |", rows)


def metrics_table() -> str:
    rows = [f"| `{each.name}` | {each.kind} | {each.text} |" for each in metric_list()]
    return lines("| metric | kind | meaning |", rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
