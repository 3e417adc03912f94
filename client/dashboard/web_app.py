"""The web application: the files of the page, the state and the stream, and actions."""

from __future__ import annotations

import hmac
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.client.client_errors import ClientError, NoServerError, RequestError
from pliant.client.dashboard.feed import Feed, TooManyBrowsersError, encode
from pliant.client.dashboard.live_state import WINDOW_S
from pliant.client.dashboard.server_requests import (
    JOB_ACTIONS,
    NODE_ACTIONS,
    ServerRequests,
    read_output,
)
from pliant.client.dashboard.sessions import (
    CSRF_HEADER,
    LIFETIME_S,
    LoginError,
    Session,
    Sessions,
    is_own_host,
    is_same_origin,
)

STATIC = Path(__file__).with_name("static")
#: Bytes of the body of a request.
MAX_BODY = 64 << 10

_HEADERS = {
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
    ),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
}


class RefusedError(Exception):
    """A request is refused with a status and a message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Guard:
    """Refuses requests for other host names, and forbids scripts from other sites by headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in _HEADERS.items() if name not in known),
                    (b"cache-control", b"no-store"),
                ]
            await send(message)

        request = Request(scope)
        app = self._app
        if not is_own_host(request.headers.get("host", "")):
            text = "this address is not the one of the dashboard: use 127.0.0.1 or localhost"
            app = answer({"error": text}, 421)
        await app(scope, receive, with_headers)


def answer(value: object, status: int = 200) -> Response:
    """Return a response that contains ``value`` as JSON."""
    return Response(encode(value), status, media_type="application/json")


Handler = Callable[[Request, Session], Awaitable[Response]]


class Dashboard:
    """The functions that answer the HTTP requests to addresses below ``api/``."""

    def __init__(self, feed: Feed, requests: ServerRequests, sessions: Sessions) -> None:
        self._feed, self._requests, self._sessions = feed, requests, sessions

    def app(self) -> Starlette:
        """Return the ASGI application with all routes."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            async with self._feed.running():
                yield
            self._requests.close()

        reading: Mapping[str, Handler] = {
            "/api/session": self._session,
            "/api/snapshot": self._snapshot,
            "/api/stream": self._stream,
            "/api/jobs/{job:int}/history": self._history,
            "/api/jobs/{job:int}/why": self._why,
            "/api/jobs/{job:int}/output": self._output,
            "/api/strategies": self._strategies,
        }
        acting: Mapping[str, Handler] = {
            "/api/jobs/{job:int}/{action}": self._act_on_job,
            "/api/nodes/{node}/{action}": self._act_on_node,
            "/api/strategy": self._use_strategy,
            "/api/logout": self._logout,
        }
        routes = [
            Route("/api/login", self._login, methods=["POST"]),
            *(Route(path, self._checked(each)) for path, each in reading.items()),
            *(
                Route(path, self._checked(each, acts=path != "/api/logout"), methods=["POST"])
                for path, each in acting.items()
            ),
            Mount("/", StaticFiles(directory=STATIC, html=True)),
        ]
        middleware = [Middleware(_Guard), Middleware(GZipMiddleware, minimum_size=2000)]
        return Starlette(routes=routes, middleware=middleware, lifespan=lifespan)

    def _checked(
        self, handle: Handler, *, acts: bool | None = None
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that first checks a request, and turns errors into responses.

        Each request needs a session and its key; requests other than GET have further checks.

        Args:
            handle: the handler that is called if the checks pass.
            acts: whether requests other than GET need a session that was started with the token for
                actions. None stands for False.
        """

        async def checked(request: Request) -> Response:
            try:
                session = self._sessions.find(request.cookies.get(self._sessions.cookie))
                if session is None:
                    raise RefusedError(401, "open the address that `pliant dashboard` printed")
                if request.method == "GET":
                    self._check_key(request, session, 401)
                else:
                    self._check_effect(request, session, acts=bool(acts))
                return await handle(request, session)
            except RefusedError as error:
                return answer({"error": str(error)}, error.status)
            except RequestError as error:
                status = {"not_found": 404, "refused": 403}.get(error.kind, 409)
                return answer({"error": str(error)}, status)
            except NoServerError as error:
                return answer({"error": str(error)}, 503)
            except ClientError as error:
                return answer({"error": str(error)}, 502)

        return checked

    @staticmethod
    def _check_key(request: Request, session: Session, status: int) -> None:
        given = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(given.encode(), session.csrf.encode()):
            text = "the request has no key: open the address that `pliant dashboard` printed"
            raise RefusedError(status, text)

    @classmethod
    def _check_effect(cls, request: Request, session: Session, *, acts: bool) -> None:
        if not is_same_origin(request.headers):
            raise RefusedError(403, "the request comes from another site")
        cls._check_key(request, session, 403)
        if acts and session.role != "operator":
            raise RefusedError(
                403, "this session may only look: open the address for actions instead"
            )

    async def _login(self, request: Request) -> Response:
        if not is_same_origin(request.headers):
            return answer({"error": "the request comes from another site"}, 403)
        try:
            body = await _body(request)
            cookie, session = self._sessions.login(str(body.get("token", "")))
        except RefusedError as error:
            return answer({"error": str(error)}, error.status)
        except LoginError as error:
            return answer({"error": str(error)}, 401)
        response = answer({**self._about(session), "csrf": session.csrf})
        response.set_cookie(
            self._sessions.cookie,
            cookie,
            max_age=int(LIFETIME_S),
            httponly=True,
            samesite="strict",
            path="/api",
        )
        return response

    async def _logout(self, request: Request, _: Session) -> Response:
        self._sessions.logout(request.cookies.get(self._sessions.cookie))
        return answer({})

    def _about(self, session: Session) -> dict[str, Any]:
        return {"role": session.role, "user": self._feed.state.user}

    async def _session(self, _: Request, session: Session) -> Response:
        return answer(self._about(session))

    async def _snapshot(self, request: Request, _: Session) -> Response:
        try:
            window_s = float(request.query_params.get("window", "3600"))
        except ValueError:
            raise RefusedError(400, "window: expected a number of seconds") from None
        return answer(self._feed.state.snapshot(min(WINDOW_S, max(60.0, window_s))))

    async def _stream(self, _: Request, __: Session) -> Response:
        messages = self._feed.stream()
        try:
            first = await anext(messages)
        except TooManyBrowsersError:
            raise RefusedError(503, "too many browsers are connected: close some") from None

        async def events() -> AsyncIterator[bytes]:
            yield first
            async for message in messages:
                yield message

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _history(self, request: Request, _: Session) -> Response:
        job = request.path_params["job"]
        return answer(
            {"events": (await run_in_threadpool(self._requests.read, "history", job))["events"]}
        )

    async def _why(self, request: Request, _: Session) -> Response:
        job = request.path_params["job"]
        found = await run_in_threadpool(self._requests.read, "why", job)
        return answer({"text": found["text"], "facts": found.get("facts") or {}})

    async def _output(self, request: Request, _: Session) -> Response:
        row = self._feed.state.rows.get(request.path_params["job"], {})
        path = str(row.get("stdout") or "")
        text = None
        # The daemon tells the path only to users who may see it. Files of others are not opened.
        if path and row.get("user") == self._feed.state.user:
            text = await run_in_threadpool(read_output, path, os.getuid())
        return answer({"path": path, "text": text})

    async def _act_on_job(self, request: Request, _: Session) -> Response:
        action, job = request.path_params["action"], request.path_params["job"]
        if action not in JOB_ACTIONS:
            raise RefusedError(404, f"there is no action {action}")
        given = await _body(request)
        return answer(
            {"message": await run_in_threadpool(self._requests.act_on_job, action, job, given)}
        )

    async def _act_on_node(self, request: Request, _: Session) -> Response:
        action, node = request.path_params["action"], request.path_params["node"]
        if action not in NODE_ACTIONS:
            raise RefusedError(404, f"there is no action {action}")
        given = await _body(request)
        return answer(
            {"message": await run_in_threadpool(self._requests.act_on_node, action, node, given)}
        )

    async def _strategies(self, _: Request, __: Session) -> Response:
        found = await run_in_threadpool(self._requests.strategies)
        return answer({key: found[key] for key in ("strategy", "options", "strategies")})

    async def _use_strategy(self, request: Request, _: Session) -> Response:
        given = await _body(request)
        return answer({"message": await run_in_threadpool(self._requests.use_strategy, given)})


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of a request.

    Raises:
        RefusedError: there is none, or it is too long.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise RefusedError(415, "the body must be JSON")
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise RefusedError(413, f"the body is longer than {MAX_BODY} bytes")
    try:
        found = msgspec.json.decode(data or b"{}")
    except msgspec.DecodeError:
        raise RefusedError(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise RefusedError(400, "the body is not a JSON object")
    return found
