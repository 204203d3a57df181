"""What the bank's commands share: their options, and how the bank that a person means is opened."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.printing import print_json

if TYPE_CHECKING:
    from sesa_core.bank.bank import Bank
    from sesa_core.bank.segment import BoundaryReport

CardId = Annotated[str, typer.Argument(help="A card's id, as `sesa bank list` prints it.")]
CardIds = Annotated[list[str], typer.Argument(help="Ids of cards, as `sesa bank list` prints them.")]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        help="A boundary: its number, its tag, a tag that a person gave, or step:25 for what was shown at step 25.",
        show_default="the newest",
    ),
]
Uri = Annotated[
    str | None,
    typer.Option("--bank", help="A bank outside a run: a directory or s3://bucket/path, keys from the usual AWS variables.", metavar="URI"),
]
By = Annotated[str | None, typer.Option("--by", help="Who asks for the change.", show_default="your user name")]
Why = Annotated[str, typer.Option("--why", help="The reason, kept in the ledger.")]


@dataclass(frozen=True)
class Place:
    """The bank that a person means: a URI, else a run's."""

    uri: str | None
    run: str | None
    runs_dir: Path

    @contextmanager
    def opened(self, *, write: bool = False, by: str | None = None) -> Iterator["Bank"]:
        """Raises UserError if there is no such bank, BankBusy if it is to be changed while a run writes it."""
        from flows.composition import build_embedder
        from sesa_core.bank.bank import Bank
        from sesa_core.config.environment import person
        from sesa_core.config.load import load_config
        from sesa_core.errors import ConfigError
        from sesa_core.training.run_folder import find_run

        if self.uri is not None and self.run is not None:
            raise ConfigError("--bank", self.uri, "give --bank or --run, not both")
        folder = find_run(self.runs_dir, self.run) if self.uri is None else None
        config = folder.config() if folder is not None else load_config()
        uri, run = (folder.bank_uri(config), folder.name) if folder is not None else (self.uri, "")
        with Bank.open(uri, build_embedder(config), by=by or person(), run=run, settings=config.bank, write=write) as bank:
            yield bank


def say(report: "BoundaryReport", as_json: bool) -> None:
    """What a change came to."""
    if as_json:
        print_json(report.as_json())
        return
    done = ", ".join(f"{c['change']} {c['card_id']}" for c in report.changed[:8]) + (" …" if len(report.changed) > 8 else "")
    typer.echo(f"boundary {report.boundary_id} ({report.tag}): {done or report.kind}")
    typer.echo(f"{report.cards.get('total', 0)} cards, {report.cards.get('active', 0)} active")
