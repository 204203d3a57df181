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
    """Entry point. Errors that SESA raises on purpose, and what Typer finds wrong in a command, become one line on standard error."""
    try:
        sys.exit(app(prog_name="sesa", standalone_mode=False))  # the code of a `typer.Exit`; None, which is 0, at the end of a command
    except UserError as error:
        _leave(str(error), 2)
    except SesaError as error:
        _leave(str(error), 1)
    except typer.Abort:  # standard input ended where a person was asked
        _leave("aborted", 1)
    except typer.TyperException as error:  # an unknown option, a missing argument, a number out of form
        _leave(_usage(error), error.exit_code)


def _usage(error: typer.TyperException) -> str:
    """What is wrong and which help to read; nothing for a group named without a command, whose help Typer has printed by then."""
    said, context = " ".join(error.format_message().split()).rstrip("."), getattr(error, "ctx", None)
    return f"{said} (see `{context.command_path} --help`)" if said and context is not None else said


def _leave(said: str, code: int) -> None:
    if said:
        typer.echo(f"error: {said}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
