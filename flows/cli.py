"""The command line: `sesa`. Puts the commands together and turns errors into one line and an exit code.

0 done · 1 a service or the system failed · 2 a person's mistake · 130 stopped by a person. Invariant: a mistake of a person
never prints a traceback. Heavy libraries are imported by the commands that need them, never here.
"""

import sys
from typing import Annotated

import typer

from sesa_core.config.environment import quiet_libraries

quiet_libraries()  # before anything imports torch, ray, verl, prefect or lancedb

from flows.commands import ablate, bank, config, evaluate, export, judge, rollouts, run, system, world  # noqa: E402
from sesa_core.errors import SesaError, UserError  # noqa: E402

app = typer.Typer(
    name="sesa",
    help="Self-play training of search agents whose failures become a versioned, audited skill bank.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("sesa"))
        raise typer.Exit


@app.callback()
def sesa(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Self-play training of search agents whose failures become a versioned, audited skill bank."""


app.command("run")(run.run)
app.command("stop")(run.stop)
app.command("doctor")(system.doctor)
app.add_typer(world.app, name="world")
app.command("warmstart")(world.warmstart)
app.command("eval")(evaluate.evaluate)
app.command("ablate")(ablate.ablate)
app.add_typer(rollouts.app, name="rollouts")
app.add_typer(export.app, name="export")
app.add_typer(bank.app, name="bank")
app.add_typer(judge.app, name="judge")
app.add_typer(config.app, name="config")


def main() -> None:
    """Entry point. Errors that SESA raises on purpose become one line on standard error."""
    try:
        app()
    except UserError as error:
        _leave(error, 2)
    except SesaError as error:
        _leave(error, 1)


def _leave(error: SesaError, code: int) -> None:
    typer.echo(f"error: {error}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
