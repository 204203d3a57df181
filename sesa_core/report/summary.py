"""What a run comes to: the numbers of its last screen, and the screen.

Owns `report.json`. Invariant: it is made of committed boundaries and stored evaluations alone, so an aborted attempt leaves
no trace in it. Edge case: a run of which the first evaluation is the only one shows it as both.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

COUNTS = {"posed": "proposer/posed", "valid": "proposer/valid", "played": "solver/problems", "solved": "solver/solved"}


def summarise(
    name: str, boundaries: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]], evaluations: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """`boundaries` are the reports of committed segments, `steps` the metrics of their steps, `evaluations` by segment."""
    failures = [b["failures"] for b in boundaries]
    return {
        "name": name,
        "segments": len(boundaries),
        "steps": len(steps),
        "questions": {label: round(sum(s.get(metric, 0) for s in steps)) for label, metric in COUNTS.items()},
        "failures": {
            "found": sum(f["new"] for f in failures),
            "distilled": sum(f["consumed"] for f in failures),
            "pending": failures[-1]["pending"] if failures else 0,
            "dropped": sum(f.get("dropped", 0) for f in failures),
            "dead": sum(f.get("dead", 0) for f in failures),
        },
        "cards": {
            "written": sum(len(b["added"]) for b in boundaries),
            "refused": sum(len(b["refused"]) for b in boundaries),
            "evicted": sum(len(b["evicted"]) for b in boundaries),
        },
        "evaluations": {str(segment): evaluations[segment] for segment in sorted(evaluations)},
    }


def read_steps(segment_folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Step metrics of the attempts that count."""
    return [json.loads(line) for folder in segment_folders for line in (folder / "metrics.jsonl").read_text().splitlines()]


def evaluation_table(evaluations: Mapping[str, Mapping[str, Any]]) -> Table:
    """Rows: bank off, on, placebo, each by exact match and then, where a judge was asked, with what it calls right.

    Columns per evaluation (by title): greedy with half its 95 % interval, and at temperature 1.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("held-out accuracy", no_wrap=True)
    for title in evaluations:
        table.add_column(f"{title}: greedy", justify="right", no_wrap=True)
        table.add_column("at temp. 1", justify="right", no_wrap=True)
    for arm in next(iter(evaluations.values()))["arms"]:
        name, measured = "placebo cards" if arm == "placebo" else f"bank {arm}", [e["arms"][arm] for e in evaluations.values()]
        table.add_row(f"  {name}", *(cell for own in measured for cell in _cells(own)))
        judged = [own.get("judge") for own in measured]
        if any(judged):
            table.add_row(f"  {name}, judged", *(cell for own in judged for cell in (_cells(own) if own else ("-", "-"))))
    return table


def _cells(arm: Mapping[str, Any]) -> tuple[str, str]:
    """Of an arm, or of what the judge makes of it, which has no interval while answers are undecided."""
    low, high = arm["greedy_interval"] or (0.0, 0.0)
    half = f" ± {(high - low) * 50:.1f}" if arm["greedy_interval"] else ""
    return _share(arm, "greedy") + half, _share(arm, "sampled")


def _share(arm: Mapping[str, Any], measure: str) -> str:
    """An accuracy, or the bounds between which it lies."""
    if arm[measure] is not None:
        return f"{arm[measure]:.1%}"
    bounds = arm.get(f"{measure}_bounds")
    return f"{bounds[0]:.1%} to {bounds[1]:.1%}" if bounds else "-"


def undecided_notes(evaluations: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each evaluation (by title) in which the judge left answers undecided: how many, and why."""
    notes = []
    for title, evaluation in evaluations.items():
        judged = [own["judge"] for own in evaluation["arms"].values() if own.get("judge")]
        if count := sum(own["undecided"] for own in judged):
            cause = next(own["cause"] for own in judged if own["cause"])
            notes.append(f"  {title}: {count} answers are not judged ({cause}); with them, accuracy lies between the two numbers")
    return notes


def print_summary(
    report: Mapping[str, Any], places: Mapping[str, object], next_commands: Sequence[str], console: Console | None = None
) -> None:
    """The last screen of a run. `places` says where what lies."""
    (console or Console(highlight=False)).print(summary(report, places, next_commands), soft_wrap=True)


def _failures(counts: Mapping[str, int]) -> str:
    """Dropped and dead ones are named only where there are any: most runs know neither."""
    parts = [f"{counts['found']} found", f"{counts['distilled']} distilled", f"{counts['pending']} waiting"]
    parts += [f"{counts['dropped']} dropped, the queue being full"] if counts.get("dropped") else []
    parts += [f"{counts['dead']} given up after too many attempts"] if counts.get("dead") else []
    return ", ".join(parts)


def _play(questions: Mapping[str, int]) -> str:
    """Played are the valid ones and, once more, some of earlier steps. Nothing in a report of an earlier version."""
    return f"; {questions['played']} played, {questions['solved']} solved at least once" if "played" in questions else ""


def summary(report: Mapping[str, Any], places: Mapping[str, object], next_commands: Sequence[str]) -> Group:
    evaluations = list(report["evaluations"].values())
    titled = {"before": evaluations[0], "after": evaluations[-1]}
    questions, cards = report["questions"], report["cards"]
    last = evaluations[-1]
    lines = [
        f"  {last['questions']} {last['split']} questions; ± half a 95 % interval; at temperature 1: {last['samples']} samples",
        *undecided_notes(titled),
        "",
        f"questions   {questions['posed']} posed, {questions['valid']} valid{_play(questions)}",
        f"failures    {_failures(report['failures'])}",
        f"cards       {cards['written']} written, {cards['refused']} refused, {cards['evicted']} evicted",
        "",
        *(f"{what:<11} {place}" for what, place in places.items()),
        "",
        *(f"{'' if place else 'next':<11} {command}" for place, command in enumerate(next_commands)),
    ]
    title = f"{report['name']}: {report['segments']} segments, {report['steps']} steps, complete"
    return Group(Text(title, style="bold"), "", evaluation_table(titled), *map(Text, lines))
