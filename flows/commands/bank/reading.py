"""`sesa bank list|show|search|versions|diff|history|tombstones|stats|verify`: nothing here writes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands.bank.opening import At, CardId, Place, Uri
from flows.commands.options import RUNS_DIR, AsJson, RunName, RunsDir
from flows.commands.printing import print_json, print_rows
from sesa_core.errors import ConfigError

if TYPE_CHECKING:
    from sesa_core.cards.schema import SkillCard

EARNED = """\
uses      problems at which the card was shown
helpful   those at which a rollout that saw it solved the problem; hurt: none of these did, though one gave an answer
uplift    what seeing the card changes in mean reward, shrunk towards 0
at_most   the largest uplift that {percent:.4g} % confidence leaves"""
NUMBERS = """\
cards     those that are there, were used and never used, that helped or hurt on balance, and were evicted
uses      a card and a problem at which it was shown; one helped if a rollout that saw the card solved the problem,
          and hurt if none of these did, though one gave an answer"""


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def list_cards(
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    at: At = None,
    state: Annotated[str | None, typer.Option("--state", help="Only cards in this state: candidate, active, suspended.")] = None,
    origin: Annotated[str | None, typer.Option("--origin", help="Only cards of this origin: seed, mined, distilled, person.")] = None,
    category: Annotated[str | None, typer.Option("--category", help="Only cards of this category.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the cards with what they have done: at how many problems they were shown, and what seeing them changed in mean reward.

    With bank.eviction=credible_uplift, the default, a card leaves once it has bank.min_uses_to_evict uses and `at_most` is below 0;
    no seed does, and none of an origin in bank.keep_origins.

    Example: sesa bank list --run quickstart-001 --at 2
    """
    from sesa_core.cards.schema import CATEGORIES, CardState, Origin

    for option, given, known in (("--state", state, CardState), ("--origin", origin, Origin), ("--category", category, CATEGORIES)):
        _check_known(option, given, [str(k) for k in known])
    with Place(bank, run, runs_dir).opened() as opened:
        cards, confidence = opened.cards(at), opened.settings.eviction_confidence
    wanted = (c for c in cards if state in (None, str(c.state)) and origin in (None, str(c.origin)) and category in (None, c.category))
    rows = [
        {
            "card": c.card_id,
            "origin": str(c.origin),
            "state": str(c.state),
            **_earned(c, confidence),
            "pattern": c.pattern,
        }
        for c in wanted
    ]
    print_rows(rows if as_json else _short(rows), as_json, empty="the bank holds no such card")
    _explain(EARNED.format(percent=100 * confidence), bool(rows) and not as_json)


def _earned(card: "SkillCard", confidence: float) -> dict[str, int | float | None]:
    """What a card has done. Its uplift is None as long as nothing was compared; `at_most` below 0 is the rule `credible_uplift`."""
    from sesa_core.bank.credit.uplift import upper_bound

    uplift = (card.uplift_mean, upper_bound(card, confidence)) if card.uplift_n else (None, None)
    counted = {"uses": card.retrieved_count, "helpful": card.helpful_count, "hurt": card.hurt_count}
    return counted | dict(zip(("uplift", "at_most"), uplift, strict=True))


def _short(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """For a person: two decimals, with the sign of what rounds to 0."""
    return [{name: f"{value:+.2f}" if isinstance(value, float) else value for name, value in row.items()} for row in rows]


def _explain(text: str, wanted: bool) -> None:
    """What the columns of a table mean, below it."""
    if wanted:
        typer.echo("\n" + text)


def _check_known(option: str, given: str | None, known: list[str]) -> None:
    from sesa_core.errors import ConfigError

    if given is not None and given not in known:
        raise ConfigError(option, given, f"the values are {', '.join(known)}")


def show(card: CardId, run: RunName = None, runs_dir: RunsDir = RUNS_DIR, bank: Uri = None, at: At = None, as_json: AsJson = False) -> None:
    """Print one card with everything that is known about it.

    Example: sesa bank show seed-stop-when-done
    """
    with Place(bank, run, runs_dir).opened() as opened:
        content = opened.card(card, at).model_dump(mode="json", exclude={"vector"})
    if as_json:
        print_json(content)
        return
    for name, value in content.items():
        typer.echo(f"{name}: {_plain(value)}")


def search(
    question: Annotated[str, typer.Argument(help="A question as the solver would get it.")],
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    at: At = None,
    top: Annotated[int, typer.Option("--top", help="Cards to print; the shown ones come first.", min=1)] = 10,
    as_json: AsJson = False,
) -> None:
    """Print which cards a question would be shown, how near each is, and why the others are left out.

    A card counts as near if its similarity and its trigger bonus together reach the floor.

    Example: sesa bank search "What is the currency of the country of Cordoba?" --at step:25
    """
    with Place(bank, run, runs_dir).opened() as opened:
        hits = opened.search(question, at)
    rows = [
        {
            "place": h.place,
            "card": h.card.card_id,
            "similarity": round(h.similarity, 3),
            "trigger_bonus": round(h.trigger_bonus, 3),
            "floor": h.floor,
            "utility": round(h.utility, 3),
            "left_out": h.why_not,
            "pattern": h.card.pattern,
        }
        for h in hits[:top]
    ]
    print_rows(rows, as_json, empty="the bank holds no card")


def versions(run: RunName = None, runs_dir: RunsDir = RUNS_DIR, bank: Uri = None, as_json: AsJson = False) -> None:
    """List the committed boundaries: each is a version of the bank that can be read with --at.

    Example: sesa bank versions --json
    """
    from sesa_core.bank.places import released

    with Place(bank, run, runs_dir).opened() as opened:
        boundaries, tags = opened.boundaries(), opened.tags()
    gone = released(boundaries)
    rows = [
        {
            "boundary": b.boundary_id,
            "tag": b.tag,
            "named": ", ".join(t["name"] for t in tags if t["boundary_id"] == b.boundary_id),
            "kind": b.kind,
            "segment": b.segment,
            "attempt": b.attempt,
            "cards": b.report.get("cards", {}).get("total", 0),
            "by": b.report.get("by", ""),
            "why": b.report.get("why", ""),
            "readable": b.boundary_id not in gone,
            "committed": b.committed_at,
        }
        for b in boundaries
    ]
    print_rows(rows, as_json, empty="the bank has no boundary yet")


def diff(
    before: Annotated[str, typer.Argument(help="The earlier boundary, named as for --at.")],
    after: Annotated[str | None, typer.Argument(help="The later boundary.", show_default="the newest")] = None,
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Print what changed between two boundaries: cards added, removed and changed, tombstones, counters.

    Example: sesa bank diff 0 quickstart-001.b-00003
    """
    with Place(bank, run, runs_dir).opened() as opened:
        found = opened.diff(before, after)
    if as_json:
        print_json(found.as_json())
        return
    rows: list[dict[str, Any]] = [{"card": c.card_id, "change": "added", "what": c.pattern} for c in found.added]
    rows += [{"card": c.card_id, "change": "removed", "what": c.pattern} for c in found.removed]
    for card in found.changed:
        for name, (old, new) in (card.fields | card.counters).items():
            rows.append({"card": card.card_id, "change": name, "what": f"{_plain(old)} -> {_plain(new)}"})
    rows += [{"card": t, "change": "tombstone", "what": "new"} for t in found.buried]
    rows += [{"card": t, "change": "tombstone", "what": "lifted"} for t in found.lifted]
    print_rows(rows, False, empty="the two boundaries hold the same")


def history(
    card: CardId, run: RunName = None, runs_dir: RunsDir = RUNS_DIR, bank: Uri = None, at: At = None, as_json: AsJson = False
) -> None:
    """Print everything that ever happened to a card, whether it is still in the bank or not.

    Example: sesa bank history seed-namesakes
    """
    with Place(bank, run, runs_dir).opened() as opened:
        told = opened.history(card, at)
    if as_json:
        print_json(told)
        return
    shown = ("outcome", "reason", "changed", "to", "problem_id")
    rows = [
        {
            **{name: t[name] for name in ("boundary", "kind", "step", "what", "by", "why")},
            "details": "; ".join(f"{n}: {_plain(t['details'][n])}" for n in shown if t["details"].get(n) not in (None, "", [])),
        }
        for t in told
    ]
    print_rows(rows, False, empty="nothing happened to this card")


def tombstones(
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    at: At = None,
    lifted: Annotated[bool, typer.Option("--lifted", help="Also those that a person has lifted.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the cards that left, and why; `sesa bank restore CARD` brings one back.

    Example: sesa bank tombstones --at step:30
    """
    with Place(bank, run, runs_dir).opened() as opened:
        stones = [t for t in opened.tombstones(at) if lifted or t.lifted_boundary is None]
        confidence = opened.settings.eviction_confidence
    rows = [
        {
            "card": t.card.card_id,
            "boundary": t.boundary_id,
            "reason": t.reason,
            **_earned(t.card, confidence),
            "lifted": t.lifted_boundary,
            "pattern": t.card.pattern,
        }
        for t in stones
    ]
    print_rows(rows if as_json else _short(rows), as_json, empty="no card has left the bank")
    _explain(EARNED.format(percent=100 * confidence), bool(rows) and not as_json)


def stats(
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    at: At = None,
    over_time: Annotated[bool, typer.Option("--over-time", help="The whole bank at each boundary instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Count the cards that were used, never used, helped, hurt and were evicted, by category and origin, or boundary by boundary.

    Example: sesa bank stats --over-time
    """
    if over_time and at is not None:
        raise ConfigError("--at", at, "--over-time shows every boundary; give one of the two")
    with Place(bank, run, runs_dir).opened() as opened:
        if over_time:
            rows = opened.statistics_over_time()
            print_rows(rows, as_json, empty="the bank has no boundary yet")
            _explain(NUMBERS, bool(rows) and not as_json)
            return
        found = opened.statistics(at)
    if as_json:
        print_json(found)
        return
    rows = [{"of": "the bank", **found["bank"]}]
    rows += [{"of": name, **numbers} for group in ("origins", "categories") for name, numbers in found[group].items()]
    print_rows(rows, False, empty="")
    reasons = ", ".join(f"{n} {reason}" for reason, n in found["evicted_by_reason"].items())
    typer.echo(f"states: {', '.join(f'{n} {s}' for s, n in found['states'].items()) or 'no card'}; evicted: {reasons or 'none'}")
    _explain(NUMBERS, True)


def verify(run: RunName = None, runs_dir: RunsDir = RUNS_DIR, bank: Uri = None, at: At = None, as_json: AsJson = False) -> None:
    """Check that tables, ledger and pins tell the same at every boundary, and name the first difference. Exits with 1 if there is one.

    Every pinned version is read, and the ledger is played again: it must lead to the very cards and tombstones of the tables.

    Example: sesa bank verify --json
    """
    with Place(bank, run, runs_dir).opened() as opened:
        found = opened.verify(at)
    if as_json:
        print_json(found.as_json())
    elif found.difference is not None:
        typer.echo(f"boundary {found.difference.boundary_id} ({found.difference.tag}), {found.difference.where}: {found.difference.what}")
    else:
        let_go = f", {found.released} were let go by a compaction" if found.released else ""
        typer.echo(
            f"{found.boundaries} boundaries agree{let_go}: {found.cards} cards, {found.tombstones} tombstones, {found.events} events"
        )
    if found.ahead and not as_json:
        typer.echo(f"not committed: rows of {', '.join(found.ahead)}; a run is at work, or was killed and the next writer takes them back")
    if found.difference is not None:
        raise typer.Exit(1)
