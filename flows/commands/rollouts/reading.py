"""`sesa rollouts show|grep|stats`: the games that a run stored. Nothing here writes."""

import re
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands.options import RUNS_DIR, AsJson, RunName, RunsDir
from flows.commands.printing import counted, print_json, print_rows
from flows.commands.rollouts.opening import (
    ROLES,
    Choice,
    Everything,
    RolloutRole,
    Steps,
    Stored,
    check_known,
    find,
    games_of,
    open_stored,
    refuse,
    selection,
    span,
    within,
)

if TYPE_CHECKING:
    from sesa_core.report.game_text import Shown
    from sesa_core.report.rollouts import Game, Hit
    from sesa_core.rollout.stored import StoredRollout

CUT = 200  # characters of a text on a terminal
AROUND = 40  # characters on either side of a hit


def show(
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    step: Annotated[int | None, typer.Option("--step", help="The step of which to show a game.", show_default="the newest")] = None,
    problem: Annotated[str | None, typer.Option("--problem", help="Id of a problem, or how it begins.", metavar="ID")] = None,
    target: Annotated[str | None, typer.Option("--target", help="Id of a target: all that was asked for it.", metavar="ID")] = None,
    trajectory: Annotated[str | None, typer.Option("--trajectory", help="One rollout: step/number.", metavar="ID")] = None,
    role: RolloutRole = None,
    sample: Annotated[int | None, typer.Option("--sample", help="Only this of the solver's rollouts, from 0.", metavar="N")] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Long texts in full.")] = False,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Print a game: how the proposer came to its question, and how the solver's rollouts answered it.

    Without a selection it is a problem of the newest step, the first that some rollouts solved and others did not, if there is one;
    the step's other problems stand below it.

    Example: sesa rollouts show --step 7 --role solver --sample 0
    """
    from sesa_core.report.game_text import game_data
    from sesa_core.report.rollouts import listing
    from sesa_core.rollout.stored import read_step

    check_known("--role", role, ROLES)
    choice = Choice(problem, target, trajectory)
    given = choice.given
    if len(given) > 1:
        refuse(*given[1], f"{given[0][0]} is given too; give one of --problem, --target, --trajectory")
    stored = open_stored(run, runs_dir, everything)
    file, choice = find(stored, step, choice)
    rollouts = read_step(file)
    if not rollouts:
        refuse("--step", file.step, "nothing was played there")
    games = games_of(stored, rollouts, choice)
    shown = selection(games, role, sample, choice.trajectory)
    games = [g for g in games if any(map(shown, (*g.proposals, *g.rollouts)))]
    others = [] if given else listing(rollouts)
    if as_json:
        place = {"run": stored.folder.name, "step": file.step, "segment": file.segment, "attempt": file.attempt, "counts": file.counts}
        print_json(place | {"games": [game_data(g, stored.config, shown) for g in games], "problems": others})
        return
    _print_games(games, stored, shown, whole)
    if not given:
        _print_step(rollouts, others)


def _print_games(games: "list[Game]", stored: Stored, shown: "Shown", whole: bool) -> None:
    from sesa_core.report.game_text import HEAD, TITLE, Cutter, game_lines

    cut = Cutter(None if whole else CUT)
    for number, game in enumerate(games):
        if number:
            typer.echo()
        for kind, line in game_lines(game, stored.config, cut, shown):
            typer.echo(typer.style(line, bold=True) if kind == TITLE else typer.style(line, fg="cyan") if kind == HEAD else line)
    first = games[0].about
    notes = [] if first.place.counts else [f"attempt {first.place.attempt} at this step does not count: no boundary names it"]
    if first.older:
        notes.append("written by an earlier SESA, which recorded no decoys, advantages, hops, thoughts and rewards of the proposer")
    if cut.did:
        notes.append("long texts were cut; --whole prints them in full")
    typer.echo("\n" + "\n".join(notes) if notes else "", nl=bool(notes))


def _print_step(rollouts: "list[StoredRollout]", others: list[dict[str, Any]]) -> None:
    """What else there is in a step, and how to come to it."""
    from sesa_core.report.rollouts import rejections

    fates = rejections(rollouts)
    step = rollouts[0].place.step
    typer.echo(f"\nstep {step}: {sum(fates.values())} proposals, {', '.join(f'{n} {what}' for what, n in fates.items())}")
    print_rows(others, False, empty="no problem was played")
    typer.echo("\nothers: --problem ID, --step N, --target ID, --trajectory STEP/NUMBER; `sesa rollouts grep` finds them by their text")


def grep(
    pattern: Annotated[str, typer.Argument(help="A regular expression, as Python's `re` reads it.")],
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    role: RolloutRole = None,
    steps: Steps = None,
    ending: Annotated[list[str] | None, typer.Option("--ending", help="Only rollouts that ended so; may be repeated.")] = None,
    reward: Annotated[
        str | None, typer.Option("--reward", help="Only rollouts with such a reward: 1, 0.2:0.8, 0.5: or :0.5.", metavar="A:B")
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Capitals match small letters.")] = False,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Search what was written and found: questions, thoughts, queries, titles of passages, answers. One line for each text with a hit.

    A line begins with the rollout's id, for `sesa rollouts show --trajectory`. Exits with 1 if there is no hit.

    Example: sesa rollouts grep "capital of (Chad|Mali)" --role solver --reward 0
    """
    from sesa_core.report.rollouts import hits
    from sesa_core.rollout.stored import SEARCHING, read_step
    from sesa_core.types import Ending

    check_known("--role", role, ROLES)
    for one in ending or ():
        check_known("--ending", one, tuple(e.value for e in Ending))
    low, high = span("--reward", reward, float)
    try:
        wanted = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        refuse("PATTERN", pattern, f"it is not a regular expression: {error}")
    stored = open_stored(run, runs_dir, everything)
    read, found = 0, []
    for file in within(stored, steps):
        rollouts = [r for r in read_step(file, SEARCHING) if role in (None, r.role) and (not ending or r.ending in ending)]
        rollouts = [r for r in rollouts if reward is None or (r.reward is not None and low <= r.reward <= high)]
        read += len(rollouts)
        for hit in hits(wanted, rollouts):
            found.append(hit)
            if not as_json:
                _print_hit(hit)
    of = {h.rollout.trajectory_id for h in found}
    if as_json:
        print_json({"hits": [_hit_data(h) for h in found], "rollouts": len(of), "searched": read})
    else:
        typer.echo(f"{counted(len(found), 'hit')} in {len(of)} of {counted(read, 'rollout')}")
    if not found:
        raise typer.Exit(1)


def _print_hit(hit: "Hit") -> None:
    from sesa_core.report.game_text import safe_line

    r = hit.rollout
    before, at, after = hit.around(AROUND)
    reward = "-" if r.reward is None else f"{r.reward:.2f}"
    ids = r.problem_id or shlex.quote(safe_line(r.group_id))
    text = f"{before}{typer.style(at, fg='red', bold=True) if sys.stdout.isatty() else at}{after}"
    typer.echo(f"{r.trajectory_id:<8} step {r.place.step}  {r.role:<8}  {ids}  reward {reward}  {hit.place}: {text}")


def _hit_data(hit: "Hit") -> dict[str, Any]:
    r = hit.rollout
    ids = {"trajectory": r.trajectory_id, "step": r.place.step, "role": r.role.value, "problem": r.problem_id or None}
    more = {"group_id": r.group_id, "sample": r.sample, "ending": r.ending.value, "reward": r.reward}
    return ids | more | {"place": hit.place, "text": hit.text, "start": hit.start, "end": hit.end}


def stats(
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    by: Annotated[str, typer.Option("--by", help="One row for each: step, segment, role, hops, ending.")] = "segment",
    role: RolloutRole = None,
    steps: Steps = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Count the rollouts: mean reward, how they ended, valid questions, turns, searches, tokens, cards, different questions.

    Both roles have rows of their own. `valid` is a share of the proposals, `cards` of the solver's rollouts that saw a card.

    Example: sesa rollouts stats --by hops --role solver
    """
    from sesa_core.report.rollouts import GROUPINGS, statistics
    from sesa_core.rollout.stored import COUNTING, read_step

    check_known("--by", by, GROUPINGS)
    check_known("--role", role, ROLES)
    stored = open_stored(run, runs_dir, everything)
    files = within(stored, steps)

    def rollouts() -> "Iterator[StoredRollout]":
        for file in files:
            yield from (r for r in read_step(file, COUNTING) if role in (None, r.role))

    rows = statistics(rollouts(), by)
    if as_json:
        print_json(rows)
        return
    endings = list(dict.fromkeys(e for row in rows for e in row["endings"])) if by != "ending" else []
    _print_table([_stats_row(row, endings) for row in rows])


def _stats_row(row: dict[str, Any], endings: list[str]) -> dict[str, str]:
    keys = {n: "?" if v is None else str(v) for n, v in row.items() if n in ("step", "segment", "hops", "ending", "role", "count")}
    means = {n: "" if row[n] is None else f"{row[n]:.2f}" for n in ("reward", "turns", "searches", "tokens")}
    shares = {n: "" if v is None else f"{v:.0%}" for n, v in (("valid", row["valid"]), ("cards", row["shown_cards"]))}
    return keys | means | shares | {"questions": str(row["questions"])} | {e: f"{row['endings'].get(e, 0):.0%}" for e in endings}


def _print_table(rows: list[dict[str, str]]) -> None:
    """Never cut: in a narrow terminal lines are folded, no number is lost."""
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    typer.echo(typer.style("  ".join(name.ljust(width) for name, width in widths.items()), bold=True))
    for row in rows:
        typer.echo("  ".join(row[name].ljust(width) for name, width in widths.items()).rstrip())
