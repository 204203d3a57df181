"""`sesa judge`: the built-in judge."""

from typing import Annotated

import typer

app = typer.Typer(help="The judge that distils failures into skill cards.", no_args_is_help=True)


@app.command("serve")
def serve(
    host: Annotated[str, typer.Option("--host", help="Loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 takes a free one.", min=0, max=65535)] = 8900,
    faults: Annotated[
        str,
        typer.Option(
            "--faults", help="Faults for tests, call by call: NAME, NAME*COUNT, or NAME* for ever. `ok` is no fault.", metavar="PLAN"
        ),
    ] = "",
) -> None:
    """Serve the built-in judge: OpenAI's chat completions on loopback, until Ctrl-C.

    With --faults it misbehaves as real endpoints do: the example answers seven calls and says 429 to every later one. A wrong name
    lists the right ones.

    Example: sesa judge serve --port 8900 --faults "ok*7,rate_limit*"
    """
    from sesa_core.judge.server import MODEL, serve

    def announce(address: str) -> None:
        typer.echo(f"judge at {address}, model {MODEL}; use it with --set judge.base_url={address}")

    serve(host, port, announce, faults)
