"""What is sent: pages as HTML, files, and failures in the form that the asker understands."""

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from cordwood import __version__
from cordwood.console.console import Console
from cordwood.console.pages import changes
from cordwood.console.pages.failures import Failure, LoginNeededError, failure_of
from cordwood.console.pages.page import PageRequest, PageSpec
from cordwood.console.pages.page_list import NAVIGATION, PAGES
from cordwood.console.pages.rendering import StaticFiles, Templates
from cordwood.console.sessions import Viewer
from cordwood.console.web.requests import Requests

logger = logging.getLogger(__name__)


class Answers:
    """Makes answers from views and errors. Any thread may use it."""

    def __init__(self, console: Console, requests: Requests, static: StaticFiles) -> None:
        self._console = console
        self._requests = requests
        self._templates = Templates(static)

    # --- pages -------------------------------------------------------------------------------

    def page(self, request: Request, asked: PageRequest, spec: PageSpec, view: Any) -> Response:
        context = {
            "view": view,
            "spec": spec,
            "title": spec.title,
            "section": spec.section,
            "tab": spec.tab,
            "topic_name": asked.path.get("topic"),
            "parameters": dict(request.query_params),
            "path": request.url.path,
            "snapshot": asked.snapshot,
            "now_ms": asked.now_ms,
            "done": changes.DONE.get(request.query_params.get("done", "")),
        }
        return self._rendered(request, asked.viewer, spec.template, context, HTTPStatus.OK)

    def plain_page(
        self, request: Request, template: str, title: str, status: HTTPStatus, **more: object
    ) -> Response:
        """A page that shows nothing of the store."""
        try:
            viewer: Viewer | None = self._requests.viewer(request)
        except LoginNeededError:
            viewer = None
        context = {
            "title": title,
            "section": "",
            "tab": "",
            "path": request.url.path,
            "parameters": dict(request.query_params),
            "now_ms": self._console.clock.now_ms(),
            "snapshot": None,
            "done": None,
            **more,
        }
        return self._rendered(request, viewer, template, context, status)

    def _rendered(
        self,
        request: Request,
        viewer: Viewer | None,
        template: str,
        context: dict[str, Any],
        status: HTTPStatus,
    ) -> Response:
        context |= self._surroundings(viewer)
        session = self._requests.session_for_answer(request)
        context["token"] = self._console.tokens.token(session)
        response = Response(
            self._templates.render(template, context),
            status,
            media_type="text/html",
            headers={"Cache-Control": "no-store"},
        )
        self._requests.keep_session(request, response)
        return response

    def _surroundings(self, viewer: Viewer | None) -> dict[str, Any]:
        """What every page has around its content."""
        config = self._console.config
        return {
            "version": __version__,
            "viewer": viewer,
            "needs_login": config.needs_login,
            "allows_changes": config.allows_changes,
            "interval_ms": int(config.interval_s * 1000),
            "has_files": self._console.opened is not None,
            "has_broker": self._console.access is not None,
            "navigation": self._navigation(),
            "target": self._target(viewer),
        }

    def _navigation(self) -> list[PageSpec]:
        by_path = {spec.path: spec for spec in PAGES}
        specs = [by_path[path] for path in NAVIGATION]
        return [spec for spec in specs if self._is_possible(spec.needs)]

    def _is_possible(self, needs: str) -> bool:
        return {
            "files": self._console.opened is not None,
            "broker": self._console.access is not None,
            "cluster": self._has_replicas(),
        }.get(needs, True)

    def _has_replicas(self) -> bool:
        """A single broker has no replicas. Without a user of its own, the console cannot know."""
        if not self._console.config.has_own_access:
            return self._console.access is not None
        newest = self._console.keeper.newest
        return newest is not None and newest.replicas is not None

    def _target(self, viewer: Viewer | None) -> str:
        """What the console looks at. Paths are for viewers who may see the whole cluster."""
        opened, access = self._console.opened, self._console.access
        parts = [access.shown_address] if access else []
        if opened is not None and not self._console.config.needs_login:
            parts += opened.store.data_dirs
        return "" if viewer is None else ", ".join(parts)

    # --- failures ----------------------------------------------------------------------------

    def page_or_failure(self, request: Request, make: Callable[[], Response]) -> Response:
        """What `make` returns; if it fails, a page that says why, or the login."""
        try:
            return make()
        except Exception as error:
            return self.failed_page(request, error)

    def failed_page(self, request: Request, error: Exception) -> Response:
        if isinstance(error, LoginNeededError):
            return _to_login(request)
        return self.failure_page(request, self._noted(error))

    def failure_page(self, request: Request, failure: Failure) -> Response:
        # The page asks again by itself, but not if it answers a form, and not for ever in vain.
        passes = request.method == "GET" and failure.status >= HTTPStatus.BAD_GATEWAY
        return self.plain_page(
            request, "failure.html", failure.title, failure.status, failure=failure, passes=passes
        )

    def failed_json(self, error: Exception) -> Response:
        """For programs, and for the scripts of pages."""
        if isinstance(error, LoginNeededError):
            return JSONResponse({"error": "log in first"}, HTTPStatus.UNAUTHORIZED)
        failure = self._noted(error)
        return JSONResponse({"error": failure.text}, failure.status)

    def _noted(self, error: Exception) -> Failure:
        failure = failure_of(error)
        if failure.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            logger.error("a page failed", exc_info=error)
        return failure


def _to_login(request: Request) -> Response:
    following = request.url.path if request.method == "GET" else "/"
    if request.method == "GET" and request.url.query:
        following += f"?{request.url.query}"
    return RedirectResponse(f"/login?next={quote(following, safe='')}", HTTPStatus.SEE_OTHER)


def attachment_headers(name: str) -> dict[str, str]:
    """The answer is saved as a file, never shown as a page."""
    return {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Cache-Control": "no-store",
    }


def attachment(content: bytes, name: str, kind: str) -> Response:
    return Response(content, media_type=kind, headers=attachment_headers(name))
