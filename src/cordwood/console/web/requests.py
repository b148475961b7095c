"""Who asks for what: the session, the viewer and the form behind a request."""

from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from cordwood.console.console import Console
from cordwood.console.pages.failures import LoginNeededError
from cordwood.console.pages.page import PageForbiddenError, PageRequest
from cordwood.console.sessions import Viewer, new_session_id

_FIELDS_MAX: Final = 50


class Requests:
    """Reads requests. Any thread may use it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._has_tls = console.config.scheme == "https"
        prefix = "__Host-" if self._has_tls else ""
        self._cookie = f"{prefix}cordwood-console-{console.config.port}"

    # --- sessions ----------------------------------------------------------------------------

    def session(self, request: Request) -> str:
        """The session that the browser names; empty if it names none."""
        return request.cookies.get(self._cookie, "")

    def session_for_answer(self, request: Request) -> str:
        """The session of the browser, or a new one, for the forms of the answer."""
        session = self.session(request) or new_session_id()
        request.state.session = session
        return session

    def keep_session(self, request: Request, response: Response) -> None:
        """Tell the browser its session, if the answer began it."""
        if self.session(request) != request.state.session:
            self.set_session(response, request.state.session)

    def set_session(self, response: Response, session: str) -> None:
        response.set_cookie(
            self._cookie, session, httponly=True, samesite="strict", secure=self._has_tls, path="/"
        )

    def forget_session(self, response: Response) -> None:
        response.delete_cookie(self._cookie, path="/", secure=self._has_tls, httponly=True)

    # --- what is asked -----------------------------------------------------------------------

    def viewer(self, request: Request) -> Viewer:
        """Raises `LoginNeededError`."""
        if not self._console.config.needs_login:
            return self._console.everybody
        found = self._console.sessions.find(self.session(request))
        if found is None:
            raise LoginNeededError
        return found

    def asked(self, request: Request, form: dict[str, str] | None = None) -> PageRequest:
        """Raises `LoginNeededError`."""
        viewer = self.viewer(request)
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

    async def form(self, request: Request) -> dict[str, str]:
        """The fields of a form of ours. Raises `PageForbiddenError` if it is not ours."""
        try:
            text = (await request.body()).decode("ascii")
            fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX))
        except (ValueError, ClientDisconnect) as error:
            raise PageForbiddenError("This is not a form of the console.") from error
        session = self.session(request)
        if not session or not self._console.tokens.is_valid(session, fields.get("token", "")):
            raise PageForbiddenError("This form is too old. Load the page again and retry.")
        return fields
