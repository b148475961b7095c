"""Tables for docs/protocol.md: the Kafka APIs that a broker serves, and the purpose of the others.

The list of all APIs comes from `kio`, which generates it from Kafka's own definitions. An API that
is neither served nor listed here is an error, so an upgrade of `kio` cannot add one unnoticed.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from cordwood.protocol.api_catalog import API_CATALOG

UNSERVED = {
    "delegation tokens": (38, 39, 40, 41),
    "moving replicas, electing leaders": (34, 43, 45),
    "share groups": (76, 77, 78, 79, 90, 91, 92),
    "Kafka Streams groups": (88, 89),
    "cluster features, quorum, brokers": (55, 57, 64, 80, 81),
}
# Clients never send these.
BETWEEN_BROKERS = {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 83, 84, 85, 86, 87}


def api_table() -> str:
    rows = [
        f"| {int(api.key)} | {api.name} | {api.min_version} to {api.max_version} |"
        for api in API_CATALOG.values()
    ]
    return "\n".join(["| key | API | versions |", "|---|---|---|", *rows, ""])


def unserved_table() -> str:
    names = kafka_apis()
    missing = {key for keys in UNSERVED.values() for key in keys}
    served = {int(api.key) for api in API_CATALOG.values()}
    for key, name in names.items():
        if (key in served) + (key in missing) + (key in BETWEEN_BROKERS) != 1:
            raise LookupError(f"build_support/api_table.py must list {name} ({key}) exactly once")
    rows = [
        f"| {what} | {', '.join(f'{names[key]} ({key})' for key in keys)} |"
        for what, keys in UNSERVED.items()
    ]
    return "\n".join(["| for | APIs |", "|---|---|", *rows, ""])


def kafka_apis() -> dict[int, str]:
    """The name of each API by its key."""
    import kio.schema

    names: dict[int, str] = {}
    for message in pkgutil.iter_modules(kio.schema.__path__, "kio.schema."):
        if not message.ispkg:
            continue
        versions = list(pkgutil.iter_modules(importlib.import_module(message.name).__path__))
        request = f"{message.name}.{versions[-1].name}.request"
        if importlib.util.find_spec(request) is None:
            continue
        for name, kind in vars(importlib.import_module(request)).items():
            if name.endswith("Request") and hasattr(kind, "__api_key__"):
                names[int(kind.__api_key__)] = name.removesuffix("Request")
    return dict(sorted(names.items()))
