"""`sesa bank`: reading the skill bank of a run. Nothing here writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.options import RUNS_DIR, AsJson, RunName, RunsDir
from flows.commands.printing import print_json, print_rows

if TYPE_CHECKING:
    from sesa_core.bank.store import BankStore

app = typer.Typer(help="The skill bank: cards, versions.", no_args_is_help=True)

At = Annotated[str | None, typer.Option("--at", help="A boundary, by number or tag.", show_default="the newest")]


@contextmanager
def _bank_of(runs_dir: Path, run: str | None) -> Iterator["BankStore"]:
    from flows.composition import open_bank
    from sesa_core.training.run_folder import find_run

    folder = find_run(runs_dir, run)
    with open_bank(folder, folder.config(), write=False) as store:
        yield store


@app.command("list")
def list_cards(
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    at: At = None,
    state: Annotated[str | None, typer.Option("--state", help="Only cards in this state: candidate, active, suspended.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the cards with what they have done.

    Example: sesa bank list --run quickstart-001 --at 2
    """
    with _bank_of(runs_dir, run) as store:
        cards = [c for c in store.read_cards(at) if state in (None, str(c.state))]
    rows = [
        {
            "card": c.card_id,
            "origin": str(c.origin),
            "state": str(c.state),
            "shown": c.retrieved_count,
            "helped": c.helpful_count,
            "hurt": c.hurt_count,
            "pattern": c.pattern,
        }
        for c in cards
    ]
    print_rows(rows, as_json, empty="the bank holds no such card")


@app.command("show")
def show(
    card: Annotated[str, typer.Argument(help="A card's id, as `sesa bank list` prints it.")],
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """Print one card with everything that is known about it.

    Example: sesa bank show seed-stop-when-done
    """
    import difflib

    from sesa_core.errors import UserError

    with _bank_of(runs_dir, run) as store:
        cards = {c.card_id: c for c in store.read_cards(at)}
    if card not in cards:
        near = difflib.get_close_matches(card, cards, n=1)
        raise UserError(f"there is no card {card!r} in this bank" + (f"; did you mean {near[0]}?" if near else ""))
    content = cards[card].model_dump(mode="json", exclude={"vector"})
    if as_json:
        print_json(content)
        return
    for name, value in content.items():
        typer.echo(f"{name}: {', '.join(map(str, value)) if isinstance(value, list) else value}")


@app.command("versions")
def versions(run: RunName = None, runs_dir: RunsDir = RUNS_DIR, as_json: AsJson = False) -> None:
    """List the committed boundaries: each is a version of the bank that can be read with --at.

    Example: sesa bank versions --json
    """
    with _bank_of(runs_dir, run) as store:
        rows = [
            {
                "boundary": b.boundary_id,
                "tag": b.tag,
                "kind": b.kind,
                "segment": b.segment,
                "attempt": b.attempt,
                "cards": len(store.read_cards(b.boundary_id)),
                "committed": b.committed_at,
            }
            for b in store.boundaries()
        ]
    print_rows(rows, as_json, empty="the bank has no boundary yet")
