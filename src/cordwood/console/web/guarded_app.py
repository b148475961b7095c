"""The gate before the web application: which requests come in, and what every answer carries."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cordwood.console.request_guard import SECURITY_HEADERS, RequestGuard


class GuardedApp:
    """Refuses requests that are not for us, and adds the headers that protect every answer."""

    def __init__(self, application: ASGIApp, guard: RequestGuard) -> None:
        self._application = application
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._application(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._guard.refusal(scope["method"], Headers(scope=scope))
        if refusal is not None:
            answer = Response(f"{refusal.reason}\n", refusal.status, media_type="text/plain")
            await answer(scope, receive, protected)
            return
        await self._application(scope, receive, protected)
