"""The web application: which address leads to which page, and what happens to every request."""

import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from cordwood import __version__
from cordwood.console.console import Console
from cordwood.console.decoding.value_decoders import visible
from cordwood.console.guarded_app import GuardedApp
from cordwood.console.pages import changes, exports, segment_pages, streams
from cordwood.console.pages.failures import Failure, LoginNeededError, failure_of
from cordwood.console.pages.json_values import as_json
from cordwood.console.pages.open_api import api_path, open_api
from cordwood.console.pages.page import (
    PageForbiddenError,
    PageNotFoundError,
    PageRequest,
    PageSpec,
    Redirect,
)
from cordwood.console.pages.page_list import NAVIGATION, PAGES
from cordwood.console.pages.rendering import StaticFiles, Templates
from cordwood.console.sessions import LoginFailedError, Viewer, log_in, new_session_id

logger = logging.getLogger(__name__)

_SEGMENT_PATH: Final = "/topics/{topic}/segments/{partition}/{base}"
_YEAR_S: Final = 31_536_000
_LOGINS_MAX: Final = 8
_FIELDS_MAX: Final = 50


class WebApp:
    """Answers requests. Pages are made in threads of a pool, streams on the event loop."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._static = StaticFiles()
        self._templates = Templates(self._static)
        self._slots = streams.StreamSlots()
        # A broker answers a wrong password late; attempts must not take all threads meanwhile.
        self._logins = threading.Semaphore(_LOGINS_MAX)
        has_tls = console.config.scheme == "https"
        prefix = "__Host-" if has_tls else ""
        self._cookie = f"{prefix}cordwood-console-{console.config.port}"
        self._has_tls = has_tls

    def application(self) -> ASGIApp:
        routes = [
            Route("/static/{name}", self._serve_static),
            Route("/favicon.ico", self._serve_icon),
            Route("/healthz", self._health),
            Route("/login", self._login_page, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/api", self._api_page),
            Route("/api/openapi.json", self._open_api),
            Route("/topics/{topic}/tail", self._tail),
            Route("/topics/{topic}/find", self._find),
            Route("/topics/{topic}/export", self._export),
            Route("/topics/{topic}/messages/{partition}/{offset}/value", self._value),
            Route(
                "/topics/{topic}/config", self._changing(changes.change_config), methods=["POST"]
            ),
            Route("/groups/reset", self._changing(changes.reset_group), methods=["POST"]),
            Route("/groups/delete", self._changing(changes.delete_group), methods=["POST"]),
            Route(_SEGMENT_PATH, self._verify, methods=["POST"]),
            *(Route(spec.path, self._page(spec)) for spec in PAGES),
            *(Route(api_path(spec), self._json(spec)) for spec in PAGES),
        ]
        application = Starlette(
            routes=routes,
            exception_handlers={404: self._not_found, 405: self._not_found},
        )
        return GuardedApp(application, self._console.guard)

    # --- requests ----------------------------------------------------------------------------

    def _session(self, request: Request) -> str:
        return request.cookies.get(self._cookie, "")

    def _viewer(self, request: Request) -> Viewer:
        if not self._console.config.needs_login:
            return self._console.everybody
        found = self._console.sessions.find(self._session(request))
        if found is None:
            raise LoginNeededError
        return found

    def _asked(self, request: Request, form: dict[str, str] | None = None) -> PageRequest:
        viewer = self._viewer(request)
        return PageRequest(
            console=self._console,
            viewer=viewer,
            snapshot=viewer.visible(self._console.keeper.snapshot),
            parameters=dict(request.query_params),
            path=request.path_params,
            address=request.client.host if request.client else "",
            now_ms=self._console.clock.now_ms(),
            form=form or {},
        )

    async def _form(self, request: Request) -> dict[str, str]:
        """The fields of a form of ours. Raises `PageForbiddenError` if it is not ours."""
        try:
            text = (await request.body()).decode("ascii")
            fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX))
        except ValueError as error:
            raise PageForbiddenError("This is not a form of the console.") from error
        session = self._session(request)
        if not session or not self._console.tokens.is_valid(session, fields.get("token", "")):
            raise PageForbiddenError("This form is too old. Load the page again and retry.")
        return fields

    # --- pages -------------------------------------------------------------------------------

    def _page(self, spec: PageSpec) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            return self._guarded(request, lambda: self._made(spec, request))

        return answer

    def _made(self, spec: PageSpec, request: Request) -> Response:
        asked = self._asked(request)
        view = spec.view(asked)
        if request.query_params.get("format") == "csv" and spec.table is not None:
            table = spec.table(view)
            if table is not None:
                name = spec.title.lower().replace(" ", "-")
                return _attachment(
                    b"".join(exports.table_as_csv(table)), f"{name}.csv", "text/csv; charset=utf-8"
                )
        return self._html(request, asked, spec, view)

    def _json(self, spec: PageSpec) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                return JSONResponse(as_json(spec.view(self._asked(request))))
            except LoginNeededError:
                return JSONResponse({"error": "log in first"}, HTTPStatus.UNAUTHORIZED)
            except Exception as error:
                failure = self._failed(error)
                return JSONResponse({"error": failure.text}, failure.status)

        return answer

    def _guarded(self, request: Request, make: Callable[[], Response]) -> Response:
        try:
            return make()
        except LoginNeededError:
            return _to_login(request)
        except Exception as error:
            return self._failure(request, self._failed(error))

    def _failed(self, error: Exception) -> Failure:
        failure = failure_of(error)
        if failure.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            logger.error("a page failed", exc_info=error)
        return failure

    def _html(
        self,
        request: Request,
        asked: PageRequest,
        spec: PageSpec,
        view: Any,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> Response:
        context = self._context(request, asked.viewer)
        context |= {
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
        return self._rendered(request, spec.template, context, status)

    def _context(self, request: Request, viewer: Viewer | None) -> dict[str, Any]:
        session = self._session(request) or new_session_id()
        request.state.session = session
        config = self._console.config
        has_files = self._console.opened is not None
        has_broker = self._console.access is not None
        return {
            "version": __version__,
            "viewer": viewer,
            "token": self._console.tokens.token(session),
            "needs_login": config.needs_login,
            "allows_changes": config.allows_changes,
            "interval_ms": int(config.interval_s * 1000),
            "has_files": has_files,
            "has_broker": has_broker,
            "navigation": [
                spec
                for path in NAVIGATION
                for spec in PAGES
                if spec.path == path
                and _is_possible(spec, has_files=has_files, has_broker=has_broker)
            ],
            "target": self._target(viewer),
        }

    def _target(self, viewer: Viewer | None) -> str:
        """What the console looks at. Paths are for those who may see the whole cluster."""
        opened, access = self._console.opened, self._console.access
        parts = [access.shown_address] if access else []
        if opened is not None and not self._console.config.needs_login:
            parts += opened.store.data_dirs
        return "" if viewer is None else ", ".join(parts)

    def _rendered(
        self, request: Request, template: str, context: dict[str, Any], status: HTTPStatus
    ) -> Response:
        response = Response(
            self._templates.render(template, context),
            status,
            media_type="text/html",
            headers={"Cache-Control": "no-store"},
        )
        if self._session(request) != request.state.session:
            self._set_cookie(response, request.state.session)
        return response

    def _set_cookie(self, response: Response, session: str) -> None:
        response.set_cookie(
            self._cookie, session, httponly=True, samesite="strict", secure=self._has_tls, path="/"
        )

    def _failure(self, request: Request, failure: Failure) -> Response:
        try:
            viewer: Viewer | None = self._viewer(request)
        except LoginNeededError:
            viewer = None
        context = self._context(request, viewer) | {
            "title": failure.title,
            "failure": failure,
            "section": "",
            "tab": "",
            "path": request.url.path,
            "parameters": dict(request.query_params),
            "now_ms": self._console.clock.now_ms(),
            "snapshot": None,
            "done": None,
        }
        return self._rendered(request, "failure.html", context, failure.status)

    def _not_found(self, request: Request, error: Exception) -> Response:
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": "there is no such address"}, HTTPStatus.NOT_FOUND)
        text = f"There is no page {request.url.path[:200]}."
        failure = Failure(status=HTTPStatus.NOT_FOUND, title="Not found", text=text)
        return self._failure(request, failure)

    # --- changes -----------------------------------------------------------------------------

    def _changing(self, change: Callable[[PageRequest], Redirect]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                form = await self._form(request)
                asked = await run_in_threadpool(self._asked, request, form)
                done = await run_in_threadpool(change, asked)
            except LoginNeededError:
                return _to_login(request)
            except Exception as error:
                failure = self._failed(error)
                return await run_in_threadpool(self._failure, request, failure)
            return RedirectResponse(done.location, HTTPStatus.SEE_OTHER)

        return answer

    async def _verify(self, request: Request) -> Response:
        spec = next(spec for spec in PAGES if spec.path == _SEGMENT_PATH)

        def verified(form: dict[str, str]) -> Response:
            asked = self._asked(request, form)
            return self._html(request, asked, spec, segment_pages.verify_segment(asked))

        try:
            form = await self._form(request)
        except PageForbiddenError as error:
            return await run_in_threadpool(self._failure, request, failure_of(error))
        return await run_in_threadpool(self._guarded, request, lambda: verified(form))

    # --- streams and files -------------------------------------------------------------------

    async def _tail(self, request: Request) -> Response:
        try:
            asked = await run_in_threadpool(self._asked, request)
            tail = await run_in_threadpool(streams.open_tail, asked)
        except Exception as error:
            return self._plain_failure(error)
        return self._stream(streams.tail_events(tail))

    async def _find(self, request: Request) -> Response:
        is_cancelled = threading.Event()
        try:
            asked = await run_in_threadpool(self._asked, request)
            found = await run_in_threadpool(streams.open_search, asked, is_cancelled)
        except Exception as error:
            return self._plain_failure(error)
        return self._stream(streams.search_events(found, is_cancelled))

    def _stream(self, events: Any) -> Response:
        if not self._slots.take():
            return JSONResponse(
                {"error": "Too many tails and searches are open. Close one, and retry."},
                HTTPStatus.SERVICE_UNAVAILABLE,
            )

        async def limited() -> Any:
            try:
                async for part in events:
                    yield part
            finally:
                self._slots.give_back()
                await events.aclose()

        return StreamingResponse(
            limited(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    def _plain_failure(self, error: Exception) -> Response:
        if isinstance(error, LoginNeededError):
            return JSONResponse({"error": "log in first"}, HTTPStatus.UNAUTHORIZED)
        failure = self._failed(error)
        return JSONResponse({"error": failure.text}, failure.status)

    def _export(self, request: Request) -> Response:
        def made() -> Response:
            name, kind, content = exports.export_records(self._asked(request))
            return StreamingResponse(
                content,
                media_type=kind,
                headers={
                    "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
                    "Cache-Control": "no-store",
                },
            )

        return self._guarded(request, made)

    def _value(self, request: Request) -> Response:
        """The bytes of a value, as a file, never as a page."""

        def made() -> Response:
            asked = self._asked(request)
            topic = asked.topic()
            asked.check_may_read(topic.name)
            if self._console.config.masking.of_topic(topic.name):
                raise PageForbiddenError("Masking rules apply to this topic.")
            partition, offset = asked.path_number("partition"), asked.path_number("offset")
            records = self._console.records(topic.name, asked.viewer)
            found = records.read(partition, offset, offset + 1, 1)
            if not found or found[0].offset != offset or found[0].value is None:
                raise PageNotFoundError(f"{topic.name}-{partition} has no value at {offset}.")
            name = f"{topic.name}-{partition}-{offset}.bin"
            return _attachment(found[0].value, name, "application/octet-stream")

        return self._guarded(request, made)

    # --- others ------------------------------------------------------------------------------

    def _serve_static(self, request: Request) -> Response:
        found = self._static.find(request.path_params["name"])
        if found is None:
            return Response("not found\n", HTTPStatus.NOT_FOUND)
        cached = (
            f"public, max-age={_YEAR_S}, immutable" if "v" in request.query_params else "no-cache"
        )
        return Response(found[0], media_type=found[1], headers={"Cache-Control": cached})

    def _serve_icon(self, request: Request) -> Response:
        return RedirectResponse(self._static.address("mark.svg"))

    def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    def _open_api(self, request: Request) -> Response:
        return JSONResponse(open_api())

    def _api_page(self, request: Request) -> Response:
        def made() -> Response:
            asked = self._asked(request)
            spec = PageSpec(
                path="/api",
                template="api.html",
                view=lambda _: open_api(),
                title="API",
                summary="The same data as JSON",
                section="api",
            )
            return self._html(request, asked, spec, open_api())

        return self._guarded(request, made)

    # --- login -------------------------------------------------------------------------------

    def _login_page(self, request: Request) -> Response:
        return self._show_login(request, None)

    def _show_login(self, request: Request, problem: str | None) -> Response:
        if not self._console.config.needs_login:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        context = self._context(request, None) | {
            "title": "Log in",
            "section": "",
            "tab": "",
            "problem": problem,
            "following": _safe_path(request.query_params.get("next", "/")),
            "path": "/login",
            "parameters": {},
            "now_ms": self._console.clock.now_ms(),
            "snapshot": None,
            "done": None,
        }
        status = HTTPStatus.OK if problem is None else HTTPStatus.UNAUTHORIZED
        return self._rendered(request, "login.html", context, status)

    async def _login(self, request: Request) -> Response:
        config = self._console.config
        try:
            form = await self._form(request)
        except PageForbiddenError as error:
            return await run_in_threadpool(self._show_login, request, str(error))
        access = self._console.access
        assert access is not None
        if not self._logins.acquire(blocking=False):
            text = "Many viewers log in at the moment. Try again in a few seconds."
            return await run_in_threadpool(self._show_login, request, text)
        try:
            viewer = await run_in_threadpool(
                lambda: log_in(
                    access,
                    form.get("user", "").strip()[:200],
                    form.get("password", "")[:1000],
                    may_change=config.allows_changes,
                )
            )
        except LoginFailedError as error:
            logger.warning("a login failed: %s", visible(str(error)))
            text = "The broker does not accept this user and password."
            return await run_in_threadpool(self._show_login, request, text)
        finally:
            self._logins.release()
        self._console.sessions.end(self._session(request))
        response = RedirectResponse(_safe_path(form.get("next", "/")), HTTPStatus.SEE_OTHER)
        self._set_cookie(response, self._console.sessions.add(viewer))
        return response

    async def _logout(self, request: Request) -> Response:
        try:
            await self._form(request)
        except PageForbiddenError as error:
            return await run_in_threadpool(self._failure, request, failure_of(error))
        self._console.sessions.end(self._session(request))
        response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        response.delete_cookie(self._cookie, path="/", secure=self._has_tls, httponly=True)
        return response


def _is_possible(spec: PageSpec, *, has_files: bool, has_broker: bool) -> bool:
    return {"files": has_files, "broker": has_broker}.get(spec.needs, True)


def _to_login(request: Request) -> Response:
    following = request.url.path if request.method == "GET" else "/"
    if request.method == "GET" and request.url.query:
        following += f"?{request.url.query}"
    return RedirectResponse(f"/login?next={quote(following, safe='')}", HTTPStatus.SEE_OTHER)


def _safe_path(text: str) -> str:
    """A path of this console; never the address of another site."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_path and text.isprintable() else "/"


def _attachment(content: bytes, name: str, kind: str) -> Response:
    return Response(
        content,
        media_type=kind,
        headers={
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "Cache-Control": "no-store",
        },
    )
