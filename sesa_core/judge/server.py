"""The built-in judge: an HTTP server on loopback that speaks OpenAI's chat completions.

Owns the wire format and the server's life. It knows nothing but the text of a request; the model behind it, `sesa-analyst`,
is `analyst.answer`. Invariant: it binds to loopback only, and a server started inside a process dies with it. Token counts
are words: the analyst has no tokenizer.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from sesa_core.errors import ConfigError, JudgeUnavailable
from sesa_core.judge import analyst
from sesa_core.judge.faults import Faulty, Plan, Reachable

MODEL = "sesa-analyst"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_START_SECONDS = 60.0


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="ignore")
    role: str
    content: str


class ChatRequest(BaseModel):
    """The part of OpenAI's request that the analyst reads; the rest is accepted and has no effect."""

    model_config = ConfigDict(extra="ignore")
    model: str
    messages: list[ChatMessage]
    stream: bool = False


def create_app() -> FastAPI:
    app = FastAPI(title="SESA's built-in judge", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/v1/models")
    def list_models() -> dict:
        return {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "sesa"}]}

    @app.post("/v1/chat/completions", response_model=None)
    def complete(request: ChatRequest) -> dict | JSONResponse:
        if request.model != MODEL:
            return _error(404, f"the model {request.model!r} does not exist here; there is {MODEL!r}", "model_not_found")
        if request.stream:
            return _error(400, "this server does not stream", "unsupported_parameter")
        return _completion(request)

    return app


def _completion(request: ChatRequest) -> dict:
    text = "\n\n".join(m.content for m in request.messages)
    reply = analyst.answer(text)
    used, written = len(text.split()), len((reply.text or reply.refusal or "").split())
    return {
        "id": "chatcmpl-sesa",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": reply.text, "refusal": reply.refusal},
            }
        ],
        "usage": {"prompt_tokens": used, "completion_tokens": written, "total_tokens": used + written},
    }


def _error(status: int, message: str, code: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error", "code": code}}, status_code=status)


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one. Raises ConfigError for an address that is not this machine's or is taken."""
    if host not in _LOOPBACK:
        raise ConfigError("judge serve --host", host, f"the built-in judge listens on loopback only: {', '.join(_LOOPBACK)}")
    listener = socket.socket(socket.AF_INET6 if host == "::1" else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError("judge serve --port", port, f"cannot listen there: {error}") from error
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


def _server(faults: str) -> uvicorn.Server:
    app, options = create_app(), {}
    if faults:
        app, options = Faulty(app, Plan(faults)), {"http": Reachable}
    config = uvicorn.Config(
        app, log_config=None, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2, **options
    )
    return uvicorn.Server(config)


def serve(host: str = "127.0.0.1", port: int = 0, announce: Callable[[str], None] | None = None, faults: str = "") -> None:
    """Serve until interrupted (Ctrl-C or SIGTERM). `announce` gets the base URL once the socket is bound; for `faults` see there."""
    server = _server(faults)
    with _listen(host, port) as listener:
        if announce is not None:
            announce(_address(listener))
        server.run(sockets=[listener])


@contextlib.contextmanager
def running_server(port: int = 0, faults: str = "") -> Iterator[str]:
    """The server in a daemon thread of this process; yields its base URL, stops it at the end. Raises JudgeUnavailable."""
    server = _server(faults)
    with _listen("127.0.0.1", port) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="sesa-judge", daemon=True)
        thread.start()
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not server.started:
                if not thread.is_alive() or time.monotonic() > deadline:
                    raise JudgeUnavailable(f"the built-in judge did not start within {_START_SECONDS:g} s")
                time.sleep(0.005)
            yield _address(listener)
        finally:
            server.should_exit = True
            thread.join(timeout=10)
