"""Templates: everything is escaped, and an undefined name is an error."""

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup

from cordwood.console.decoding.value_decoders import visible
from cordwood.console.views import words

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class StaticFiles:
    """The scripts, styles and pictures of the package, read once."""

    def __init__(self) -> None:
        folder = files("cordwood.console").joinpath("static")
        self._files = {
            entry.name: (entry.read_bytes(), _TYPES[suffix])
            for entry in folder.iterdir()
            for suffix in [entry.name[entry.name.rfind(".") :]]
            if suffix in _TYPES
        }
        self._addresses = {
            name: f"/static/{name}?v={sha256(content).hexdigest()[:12]}"
            for name, (content, _) in self._files.items()
        }

    def find(self, name: str) -> tuple[bytes, str] | None:
        return self._files.get(name)

    def address(self, name: str) -> str:
        """With a part that changes with the content, so that it can be cached for long."""
        return self._addresses[name]


class Templates:
    """The templates of the package. Any thread may use it."""

    def __init__(self, static: StaticFiles) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader("cordwood.console", "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "size": words.size_in_words,
            "count": words.count_in_words,
            "rate": words.rate_in_words,
            "duration": words.duration_in_words,
            "moment": words.moment_in_words,
            "iso": words.moment_as_iso,
            "figure": _figure,
            "shown": visible,
        }
        self._environment.globals |= {
            "static": static.address,
            "from_now": words.moment_from_now,
            "counted": words.counted,
            "link": link,
            "quoted": _quoted,
        }
        for name in self._environment.list_templates():
            self._environment.get_template(name)  # compiled before the first viewer comes

    def render(self, name: str, context: Mapping[str, Any]) -> bytes:
        return self._environment.get_template(name).render(context).encode()


def _figure(value: float | None, unit: str) -> str:
    return {
        "size": words.size_in_words,
        "rate": words.rate_in_words,
        "count": words.count_in_words,
    }[unit](value)


def link(path: str, parameters: Mapping[str, object] | None = None, **changes: object) -> str:
    """An address with the given parameters, changed: None removes one."""
    merged = {**(parameters or {}), **changes}
    kept = {key: value for key, value in merged.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


def _quoted(text: str) -> Markup:
    """A part of an address."""
    return Markup(quote(text, safe=""))
