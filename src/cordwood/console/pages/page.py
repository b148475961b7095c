"""A page: a request comes in, a view model goes out, and it is rendered as HTML, JSON or CSV."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from cordwood.console.console import Console
from cordwood.console.facts.cluster_facts import Snapshot, TopicFacts
from cordwood.console.sessions import Viewer
from cordwood.console.views.table import TablePage
from cordwood.value_class import dataclass, field

PARAMETER_CHARS_MAX: Final = 4_000
T = TypeVar("T")


class PageNotFoundError(Exception):
    """There is no such thing, or the viewer may not know that there is."""


class PageForbiddenError(Exception):
    """The viewer may not see or do this."""


class BadParameterError(Exception):
    """A parameter of the address or a field of a form is wrong. The message says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """One request. `snapshot` has only what the viewer may see."""

    console: Console
    viewer: Viewer
    snapshot: Snapshot
    parameters: Mapping[str, str]
    path: Mapping[str, str]
    address: str
    now_ms: int
    form: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        return self.parameters.get(name, default)[:PARAMETER_CHARS_MAX].strip()

    def number(self, name: str, default: int | None = None) -> int | None:
        """A whole number from the address. Raises `BadParameterError`."""
        given = self.parameters.get(name, "").strip().replace(",", "").replace("_", "")
        return default if not given else parse_number(name, given)

    def choice(self, name: str, choices: Mapping[str, T], default: str) -> str:
        given = self.parameters.get(name, default)
        return given if given in choices else default

    def path_number(self, name: str) -> int:
        return parse_number(name, self.path[name])

    def topic(self) -> TopicFacts:
        """The topic in the path. Raises `PageNotFoundError` if the viewer does not see it."""
        name = self.path["topic"]
        found = self.snapshot.topics.get(name)
        if found is None:
            found = self.viewer.visible(self.console.keeper.take_now()).topics.get(name)
        if found is None:
            raise PageNotFoundError(f"There is no topic {name!r}.")
        return found

    def check_may_read(self, topic: str) -> None:
        if not self.viewer.may_read(topic):
            raise PageForbiddenError(f"You may not read the records of {topic}.")

    def check_sees_cluster(self) -> None:
        if not self.viewer.sees_cluster:
            raise PageForbiddenError("You may not see this part of the cluster.")

    def check_may_change(self) -> None:
        if not self.viewer.may_change:
            raise PageForbiddenError(
                "This console is read-only. Start it with --allow-changes to permit changes."
            )


def parse_number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19) or int(text) >= 1 << 63:
        raise BadParameterError(f"{name} must be a whole number, not {text[:40]!r}.")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSpec:
    """One page. The same view model is served as JSON under /api/v1.

    table   the table in the view model that CSV has; None: the page has no CSV
    needs   what the page needs: files, broker, cluster (of several brokers), or either
    """

    path: str
    template: str
    view: Callable[[PageRequest], Any]
    title: str
    summary: str
    section: str
    tab: str = ""
    table: Callable[[Any], TablePage[Any] | None] | None = None
    needs: str = "either"
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """After a change: show this page, with a message."""

    location: str
    message: str
