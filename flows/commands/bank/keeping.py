"""`sesa bank export|import|tag|compact|purge`: what goes out and comes in, and what is kept."""

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.bank.opening import At, By, CardId, Place, Uri, Why
from flows.commands.options import RUNS_DIR, AsJson, RunName, RunsDir
from flows.commands.printing import counted, print_json, print_rows

Form = Annotated[str | None, typer.Option("--format", help="jsonl, parquet or skills.", show_default="told by the name")]


def export(
    file: Annotated[Path, typer.Argument(help="A new .jsonl or .parquet file, or a new folder for Agent Skills.")],
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    at: At = None,
    form: Form = None,
    vectors: Annotated[bool, typer.Option(help="Write the vectors too; without them importing embeds the cards again.")] = True,
    tombstones: Annotated[bool, typer.Option(help="Write the tombstones too (not into Agent Skills).")] = True,
    as_json: AsJson = False,
) -> None:
    """Write the cards and tombstones of a boundary to a file that another bank, a run or an agent can take in.

    Example: sesa bank export cards.jsonl --at 3 --no-vectors
    """
    with Place(bank, run, runs_dir).opened() as opened:
        count = opened.export(file, at, form=form, vectors=vectors, tombstones=tombstones)
    print_json({"file": str(file), "records": count}) if as_json else typer.echo(f"{count} cards and tombstones in {file}")


def take_in(
    file: Annotated[Path, typer.Argument(help="A .jsonl or .parquet file, or a folder of Agent Skills.")],
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    form: Form = None,
    by: By = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Take cards and tombstones into the bank. One bad card refuses the file; what is there or was evicted is skipped.

    Example: sesa bank import cards.jsonl --bank ./shared-bank --why "cards of the first run"
    """
    with Place(bank, run, runs_dir).opened(write=True, by=by) as opened:
        intake = opened.take_in(file, why, form=form)
        last = opened.store.last_boundary()
    counts = {n: getattr(intake, n) for n in ("added", "buried", "skipped", "embedded")}
    if as_json:
        print_json(counts | {"boundary": last.boundary_id if intake.edition is not None else None})
        return
    skipped = ", ".join(f"{n} {reason}" for reason, n in intake.skipped.items())
    cards, stones = counted(len(intake.added), "card"), counted(len(intake.buried), "tombstone")
    typer.echo(f"{cards} and {stones} taken in; skipped: {skipped or 'none'}")
    typer.echo(f"boundary {last.boundary_id} ({last.tag})" if intake.edition is not None else "nothing is new: no boundary was made")


def tag(
    name: Annotated[str | None, typer.Argument(help="The name to give.", show_default="list the tags")] = None,
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    at: At = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the name away; the boundary stays.")] = False,
    by: By = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Name a boundary: --at accepts the name, and compaction and retention keep what it names.

    Example: sesa bank tag before-import --at 3 --why "best so far"
    """
    place = Place(bank, run, runs_dir)
    if name is not None:
        with place.opened(write=True, by=by) as opened:
            if remove:
                opened.untag(name)
            else:
                opened.tag(name, at, why)
            rows = opened.tags()
    else:
        with place.opened() as opened:
            rows = opened.tags()
    print_rows(rows, as_json, empty="no boundary has a name")


def compact(
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", help="Newest boundaries that stay readable, beside 0 and named ones.", show_default="all", min=1),
    ] = None,
    by: By = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Make few files of many and delete versions that no boundary needs; what has a name is never touched.

    Example: sesa bank compact --keep 20
    """
    with Place(bank, run, runs_dir).opened(write=True, by=by) as opened:
        done = opened.compact(why, keep=keep)
    if as_json:
        print_json({"boundary": done.report.boundary_id, "released": list(done.released), "freed_bytes": done.freed_bytes})
        return
    gone = ", ".join(map(str, done.released))
    typer.echo(f"boundary {done.report.boundary_id} ({done.report.tag}): {done.freed_bytes / 1e6:.1f} MB freed")
    typer.echo(f"boundaries that cannot be read any more: {gone}" if gone else "every boundary can still be read")


def purge(
    card: CardId,
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    by: By = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Scrub a card from every version, tombstone, event, failure and judge reply, for what must not be kept. There is no way back.

    Evidence and trajectories in the run's folder are not touched, nor files that were exported.

    Example: sesa bank purge card-46006b9b2776 --yes --why "names a person"
    """
    from sesa_core.errors import UserError

    with Place(bank, run, runs_dir).opened(write=True, by=by) as opened:
        opened.history(card)  # an unknown card is refused before anybody is asked
        if not yes and not _confirmed(f"Scrub card {card} from all versions of the bank in {opened.store.uri}, for good?"):
            raise UserError("nothing was purged; confirm, or give --yes")
        done = opened.purge(card, why)
    if as_json:
        print_json({"card": card, "boundary": done.report and done.report.boundary_id, "rewritten": list(done.rewritten)})
        return
    where = f"boundary {done.report.boundary_id} ({done.report.tag}): " if done.report is not None else ""
    typer.echo(f"{where}{card} is purged; {len(done.rewritten)} earlier boundaries were written again without it")


def _confirmed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:  # nobody is there to answer
        return False
