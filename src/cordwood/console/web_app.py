"""The web application: its routes, by groups, and the gate before them."""

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.types import ASGIApp

from cordwood.console.console import Console
from cordwood.console.pages.rendering import StaticFiles
from cordwood.console.web.answers import Answers
from cordwood.console.web.change_routes import ChangeRoutes
from cordwood.console.web.guarded_app import GuardedApp
from cordwood.console.web.login_routes import LoginRoutes
from cordwood.console.web.page_routes import PageRoutes, StaticRoutes
from cordwood.console.web.record_routes import RecordRoutes
from cordwood.console.web.requests import Requests


def web_app(console: Console) -> ASGIApp:
    static = StaticFiles()
    requests = Requests(console)
    answers = Answers(console, requests, static)
    pages = PageRoutes(requests, answers)
    application = Starlette(
        routes=[
            *StaticRoutes(static).routes(),
            *LoginRoutes(console, requests, answers).routes(),
            *RecordRoutes(console, requests, answers).routes(),
            *ChangeRoutes(requests, answers).routes(),
            *pages.routes(),
        ],
        exception_handlers={
            HTTPStatus.NOT_FOUND: pages.not_found,
            HTTPStatus.METHOD_NOT_ALLOWED: pages.not_found,
        },
    )
    return GuardedApp(application, console.guard)
