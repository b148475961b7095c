"""The addresses of pages, as HTML, CSV and JSON, and of what pages load."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from cordwood.console.pages import exports
from cordwood.console.pages.failures import Failure
from cordwood.console.pages.json_values import as_json, json_text
from cordwood.console.pages.open_api import api_path, open_api
from cordwood.console.pages.page import PageSpec
from cordwood.console.pages.page_list import PAGES
from cordwood.console.pages.rendering import StaticFiles
from cordwood.console.web.answers import Answers, attachment
from cordwood.console.web.requests import Requests

_YEAR_S: Final = 31_536_000
_API_PAGE: Final = PageSpec(
    path="/api",
    template="api.html",
    view=lambda _: open_api(),
    title="API",
    summary="The same data as JSON",
    section="api",
)


class PageRoutes:
    """Pages are made in threads of a pool."""

    def __init__(self, requests: Requests, answers: Answers) -> None:
        self._requests = requests
        self._answers = answers

    def routes(self) -> list[Route]:
        return [
            Route("/api/openapi.json", _show_open_api),
            *(Route(spec.path, self._page(spec)) for spec in (_API_PAGE, *PAGES)),
            *(Route(api_path(spec), self._json(spec)) for spec in PAGES),
        ]

    def _page(self, spec: PageSpec) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            return self._answers.page_or_failure(request, lambda: self._made(spec, request))

        return answer

    def _made(self, spec: PageSpec, request: Request) -> Response:
        asked = self._requests.asked(request)
        view = spec.view(asked)
        if request.query_params.get("format") == "csv" and spec.table is not None:
            table = spec.table(view)
            if table is not None:
                name = spec.title.lower().replace(" ", "-")
                content = b"".join(exports.table_as_csv(table))
                return attachment(content, f"{name}.csv", "text/csv; charset=utf-8")
        return self._answers.page(request, asked, spec, view)

    def _json(self, spec: PageSpec) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                view = as_json(spec.view(self._requests.asked(request)))
                return Response(json_text(view), media_type="application/json")
            except Exception as error:
                return self._answers.failed_json(error)

        return answer

    def not_found(self, request: Request, error: Exception) -> Response:
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": "there is no such address"}, HTTPStatus.NOT_FOUND)
        text = f"There is no page {request.url.path[:200]}."
        failure = Failure(status=HTTPStatus.NOT_FOUND, title="Not found", text=text)
        return self._answers.failure_page(request, failure)


def _show_open_api(request: Request) -> Response:
    return JSONResponse(open_api())


class StaticRoutes:
    """Scripts, styles and pictures; and whether the console runs."""

    def __init__(self, static: StaticFiles) -> None:
        self._static = static

    def routes(self) -> list[Route]:
        return [
            Route("/static/{name}", self._serve),
            Route("/favicon.ico", self._serve_icon),
            Route("/healthz", _show_health),
        ]

    def _serve(self, request: Request) -> Response:
        found = self._static.find(request.path_params["name"])
        if found is None:
            return Response("not found\n", HTTPStatus.NOT_FOUND)
        cached = (
            f"public, max-age={_YEAR_S}, immutable" if "v" in request.query_params else "no-cache"
        )
        return Response(found[0], media_type=found[1], headers={"Cache-Control": cached})

    def _serve_icon(self, request: Request) -> Response:
        return RedirectResponse(self._static.address("mark.svg"))


def _show_health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})
