"""The addresses of forms: changes, and the check of a segment."""

from collections.abc import Callable
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.status import HTTP_303_SEE_OTHER

from cordwood.console.pages import changes, segment_pages
from cordwood.console.pages.page import PageRequest, Redirect
from cordwood.console.pages.page_list import PAGES
from cordwood.console.web.answers import Answers
from cordwood.console.web.requests import Requests

_SEGMENT_PATH: Final = "/topics/{topic}/segments/{partition}/{base}"


class ChangeRoutes:
    """Every form is a POST with a token. The work is done in threads of a pool."""

    def __init__(self, requests: Requests, answers: Answers) -> None:
        self._requests = requests
        self._answers = answers
        self._segment_page = next(spec for spec in PAGES if spec.path == _SEGMENT_PATH)

    def routes(self) -> list[Route]:
        return [
            self._route("/topics/{topic}/config", self._changing(changes.change_config)),
            self._route("/groups/reset", self._changing(changes.reset_group)),
            self._route("/groups/delete", self._changing(changes.delete_group)),
            self._route(_SEGMENT_PATH, self._verified),
        ]

    def _route(self, path: str, answer: Callable[[Request, dict[str, str]], Response]) -> Route:
        async def answered(request: Request) -> Response:
            try:
                form = await self._requests.form(request)
            except Exception as error:
                return await run_in_threadpool(self._answers.failed_page, request, error)
            return await run_in_threadpool(
                self._answers.page_or_failure, request, lambda: answer(request, form)
            )

        return Route(path, answered, methods=["POST"])

    def _changing(self, change: Callable[[PageRequest], Redirect]) -> Callable[..., Any]:
        def answer(request: Request, form: dict[str, str]) -> Response:
            done = change(self._requests.asked(request, form))
            return RedirectResponse(done.location, HTTP_303_SEE_OTHER)

        return answer

    def _verified(self, request: Request, form: dict[str, str]) -> Response:
        asked = self._requests.asked(request, form)
        view = segment_pages.verify_segment(asked)
        return self._answers.page(request, asked, self._segment_page, view)
