"""Prefect for a run that was started without a server: ours, in a process beside the run, and gone with it.

Prefect starts a temporary server by itself too, but that one hears the terminal's Ctrl-C (the run could not end in good
order) and outlives a killed run (two servers on one SQLite file at the next resume). So it is started here: in a session
of its own, watching a pipe that the operating system closes when the run is gone, however it went.

Invariants: inside `prefect_api` every flow of this process talks to one server; a database has one server at a time, so that
of a killed run has left before the next one opens its file. Edge case: a person's own PREFECT_API_URL is used as it is, and
nothing is started.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from flows.prefect_database import prepare
from sesa_core.config import environment
from sesa_core.errors import ServiceError

LEAVE_S = 15.0
START_S = 180.0  # a new database on a busy laptop takes ten seconds; a slow disk more


@dataclass(frozen=True)
class PrefectApi:
    """Where Prefect answers. Call `wait` before the first flow: a server that starts beside other work costs no time."""

    address: str
    wait: Callable[[], None]


@contextlib.contextmanager
def prefect_api(home: Path) -> Iterator[PrefectApi]:
    """The Prefect API to use: a person's own server, or one that lives as long as this block and keeps its files in `home`."""
    address = environment.prefect_api_url()
    if address:
        yield PrefectApi(address, lambda: _wait_until_healthy(address, None))
        return
    home.mkdir(parents=True, exist_ok=True)
    environment.keep_prefect_in(home)
    with _server(_free_port(), home) as api, _settings(api.address, home):
        yield api
        _send_what_waits()


@contextlib.contextmanager
def _server(port: int, home: Path) -> Iterator[PrefectApi]:
    command = [sys.executable, "-m", "flows.embedded_prefect", str(port), str(home)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    address = f"http://127.0.0.1:{port}/api"
    try:
        yield PrefectApi(address, lambda: _wait_until_healthy(address, process))
    finally:
        process.stdin.close()  # the server sees the end of its pipe and leaves
        try:
            process.wait(timeout=LEAVE_S + 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_healthy(address: str, process: subprocess.Popen[bytes] | None) -> None:
    deadline = time.monotonic() + (START_S if process else 10.0)
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise ServiceError(f"the embedded Prefect server ended with code {process.returncode}")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    hint = "see the run's log.txt" if process else "start it with `prefect server start`, or unset PREFECT_API_URL"
    raise ServiceError(f"Prefect does not answer at {address}; {hint}")


def _send_what_waits() -> None:
    """Logs are sent to the server in the background; the last ones must arrive before it goes."""
    from prefect.logging.handlers import APILogHandler

    APILogHandler().flush()


@contextlib.contextmanager
def _settings(address: str, home: Path) -> Iterator[None]:
    """Prefect may have read its settings already: change those in force, not only the environment."""
    from prefect.settings import PREFECT_API_URL, PREFECT_LOCAL_STORAGE_PATH, temporary_settings

    storage = (home / "storage").resolve()
    with temporary_settings({PREFECT_API_URL: address, PREFECT_LOCAL_STORAGE_PATH: storage}):
        yield


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _serve(port: int, home: Path) -> None:
    """Body of the server process: serve until standard input ends, once the server before it has left."""
    import uvicorn

    app = "prefect.server.api.server:create_app"
    server = uvicorn.Server(uvicorn.Config(app, factory=True, host="127.0.0.1", port=port, log_level="error", lifespan="on"))

    def leave_with_the_run() -> None:
        while os.read(0, 1):  # unbuffered: a lock on sys.stdin would abort the interpreter's own end
            pass
        server.should_exit = True
        time.sleep(LEAVE_S)
        os._exit(0)  # a connection that nobody closes must not keep it

    threading.Thread(target=leave_with_the_run, daemon=True).start()
    with FileLock(home / "server.lock"):
        prepare(home)
        server.run()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
