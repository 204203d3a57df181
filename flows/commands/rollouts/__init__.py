"""`sesa rollouts`: read a game that was played, search all, count them."""

import typer

from flows.commands.rollouts import reading

app = typer.Typer(help="The games that a run played: read one, search all, count them.", no_args_is_help=True)

app.command("show")(reading.show)
app.command("grep")(reading.grep)
app.command("stats")(reading.stats)
