"""The addresses of the login."""

import logging
import threading
from http import HTTPStatus
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cordwood.console.console import Console
from cordwood.console.decoding.value_decoders import visible
from cordwood.console.pages.page import PageForbiddenError
from cordwood.console.sessions import LoginFailedError, UserViewer, log_in
from cordwood.console.web.answers import Answers
from cordwood.console.web.requests import Requests

logger = logging.getLogger(__name__)

_LOGINS_MAX: Final = 8
_USER_CHARS_MAX: Final = 200
_PASSWORD_CHARS_MAX: Final = 1000


class LoginRoutes:
    """Viewers log in as users of the broker."""

    def __init__(self, console: Console, requests: Requests, answers: Answers) -> None:
        self._console = console
        self._requests = requests
        self._answers = answers
        # A broker answers a wrong password late; attempts must not take all threads meanwhile.
        self._logins = threading.Semaphore(_LOGINS_MAX)

    def routes(self) -> list[Route]:
        return [
            Route("/login", self._show, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
        ]

    def _show(self, request: Request) -> Response:
        return self._page(request, None)

    def _page(self, request: Request, problem: str | None) -> Response:
        if not self._console.config.needs_login:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        return self._answers.plain_page(
            request,
            "login.html",
            "Log in",
            HTTPStatus.OK if problem is None else HTTPStatus.UNAUTHORIZED,
            problem=problem,
            following=safe_path(request.query_params.get("next", "/")),
        )

    async def _login(self, request: Request) -> Response:
        try:
            form = await self._requests.form(request)
        except PageForbiddenError as error:
            return await run_in_threadpool(self._page, request, str(error))
        if not self._logins.acquire(blocking=False):
            text = "Many viewers log in at the moment. Try again in a few seconds."
            return await run_in_threadpool(self._page, request, text)
        try:
            viewer = await run_in_threadpool(self._log_in, form)
        except LoginFailedError as error:
            logger.warning("a login failed: %s", visible(str(error)))
            text = "The broker does not accept this user and password."
            return await run_in_threadpool(self._page, request, text)
        finally:
            self._logins.release()
        self._console.sessions.end(self._requests.session(request))
        response = RedirectResponse(safe_path(form.get("next", "/")), HTTPStatus.SEE_OTHER)
        self._requests.set_session(response, self._console.sessions.add(viewer))
        return response

    def _log_in(self, form: dict[str, str]) -> UserViewer:
        if not self._console.config.needs_login or self._console.access is None:
            raise LoginFailedError("this console has no login")
        return log_in(
            self._console.access,
            form.get("user", "").strip()[:_USER_CHARS_MAX],
            form.get("password", "")[:_PASSWORD_CHARS_MAX],
            may_change=self._console.config.allows_changes,
        )

    async def _logout(self, request: Request) -> Response:
        try:
            await self._requests.form(request)
        except PageForbiddenError as error:
            return await run_in_threadpool(self._answers.failed_page, request, error)
        self._console.sessions.end(self._requests.session(request))
        response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        self._requests.forget_session(response)
        return response


def safe_path(text: str) -> str:
    """A path of this console; never the address of another site."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_path and text.isprintable() else "/"
