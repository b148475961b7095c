"""The table of what each API needs, for the documents."""

from __future__ import annotations

from cordwood.broker.security.access_table import ACCESS_TABLE, Shown
from cordwood.protocol.api_catalog import API_CATALOG


def access_table() -> str:
    """One row for each need of an API that is served."""
    served = {api.name for api in API_CATALOG.values()}
    rows = ["| API | operation | resource | when | without it |", "|---|---|---|---|---|"]
    for api, needs in sorted(ACCESS_TABLE.items()):
        if api not in served:
            continue
        for need in needs:
            without = need.shown.value
            if need.shown in {Shown.REQUEST, Shown.ITEM}:
                without += f" ({need.code.name.upper()}, {need.code.value})"
            operation = need.operation.name
            resource = need.resource.name.lower().replace("_", " ")
            rows.append(f"| {api} | {operation} | {resource} | {need.note} | {without} |")
    return "\n".join([*rows, ""])
