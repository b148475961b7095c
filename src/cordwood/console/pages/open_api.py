"""The JSON of the console, described as OpenAPI."""

import re
from typing import Any, Final

from cordwood import __version__
from cordwood.console.pages.page import PageSpec
from cordwood.console.pages.page_list import PAGES

PREFIX: Final = "/api/v1"
_PATH_PARAMETER: Final = re.compile(r"{(\w+)}")


def api_path(spec: PageSpec) -> str:
    return PREFIX + ("/overview" if spec.path == "/" else spec.path)


def open_api() -> dict[str, Any]:
    """The document. Each path answers with what the page of the same path shows."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Cordwood console",
            "version": __version__,
            "description": "What the pages of the console show, as JSON. Read-only.",
        },
        "paths": {api_path(spec): {"get": _operation(spec)} for spec in PAGES},
    }


def _operation(spec: PageSpec) -> dict[str, Any]:
    names = _PATH_PARAMETER.findall(spec.path)
    return {
        "summary": spec.summary,
        "operationId": re.sub(r"\W+", "_", api_path(spec)).strip("_"),
        "parameters": [
            *(
                {
                    "name": name,
                    "in": "path",
                    "required": True,
                    "schema": {"type": "string" if name == "topic" else "integer"},
                }
                for name in names
            ),
            *(
                {
                    "name": name,
                    "in": "query",
                    "description": description,
                    "schema": {"type": "string"},
                }
                for name, description in spec.parameters
            ),
        ],
        "responses": {
            "200": {
                "description": spec.summary,
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            "403": {"description": "You may not see this."},
            "404": {"description": "There is no such thing, or it is not known here."},
            "503": {"description": "The broker does not answer."},
        },
    }
