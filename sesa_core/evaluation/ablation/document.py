"""The document of an ablation: settings, one section per measure, every cell that got worse, every cell. Markdown, pure.

Invariant: it is made of the cells alone, and holds no time and no place: cells that were broken off and resumed give the same
document as cells that were not. Edge case: a cell that is not done is named with its state, and is in no mean.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from sesa_core.config.models import RunConfig
from sesa_core.evaluation.ablation.arms import FULL, Arm
from sesa_core.evaluation.ablation.cells import MEASURES, Cell, CellResult
from sesa_core.evaluation.metrics import mean_interval, paired_difference
from sesa_core.means import mean_if_any

TITLES = {"greedy": "greedy", "sampled": "temperature 1"}
NOTHING = "–"
ROUNDING = 1e-9  # the same outcomes, summed in another order, are no change
Key = tuple[str, str]  # bank arm, measure


@dataclass(frozen=True)
class Experiment:
    """`config` is that of the arm `full`; `unmatched` names, by arm, the keys that make its steps another size."""

    command: str
    config: RunConfig
    arms: Sequence[Arm]
    cells: Sequence[Cell]
    unmatched: dict[str, list[str]]

    @property
    def done(self) -> dict[tuple[str, int], CellResult]:
        return {(c.arm, c.seed): c.result for c in self.cells if c.result is not None}

    @property
    def banks(self) -> tuple[str, ...]:
        return self.config.evaluation.arms

    def of_arm(self, arm: str) -> dict[int, CellResult]:
        """By seed."""
        return {seed: result for (name, seed), result in self.done.items() if name == arm}


def document(experiment: Experiment) -> str:
    """Everything that the cells show so far."""
    measures = [m for m in MEASURES if m == "greedy" or experiment.config.evaluation.samples]
    parts = [
        _head(experiment),
        *(_accuracy(experiment, measure) for measure in measures),
        _means(experiment, "What was played", "Means over the seeds that are done.", lambda result: result.play, "{:.2f}"),
        _matched(experiment),
        _worse(experiment, measures),
        _open_cells(experiment),
        _every_cell(experiment, measures),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def points(value: float) -> str:
    return f"{100 * value:+.1f}"


def with_interval(estimate: tuple[float, float, float], text: Callable[[float], str]) -> str:
    """`61.2 (58.0 to 64.4)`; without the interval where there is none."""
    mean, low, high = estimate
    return f"{text(mean)} ({text(low)} to {text(high)})" if isfinite(low) else text(mean)


def over_seeds(values: Sequence[float], text: Callable[[float], str]) -> str:
    return with_interval(mean_interval(values), text) if values else NOTHING


def _head(experiment: Experiment) -> str:
    config, plan, measure = experiment.config, experiment.config.selfplay, experiment.config.evaluation
    seeds = sorted({c.seed for c in experiment.cells})
    rows = [[f"`{arm.name}`", arm.meaning, ", ".join(f"`{c}`" for c in arm.changes) or NOTHING] for arm in experiment.arms]
    sampled = f", and as the mean of {measure.samples} samples at temperature 1" if measure.samples else ""
    judged = ", by exact match whatever the judge says of an answer" if config.rollout.answer_check == "judge" else ""
    return f"""# What each part of the method is worth

Written by `{experiment.command}`; do not edit. {len(experiment.done)} of {len(experiment.cells)} cells are done.

A cell is one `sesa run` of one arm with one seed: steps {plan.segments * plan.steps_per_segment}, segments {plan.segments}, over
preset `{config.preset}`, per step {plan.targets} targets x {plan.proposals_per_target} proposals and their valid questions, filled up
to {plan.problems} problems from earlier steps, x {plan.solver_group} solver rollouts; seeds {", ".join(map(str, seeds))}.
Accuracy is measured on the same {measure.questions} held-out questions of the {measure.split} split before and after training,
greedy{sampled}{judged}, with the bank {", ".join(measure.arms)}.
Accuracies are percent, differences points. Intervals are 95 %: over seeds by Student's t, within a cell paired over its questions.

{table(["arm", "what it is", "settings it changes"], rows)}"""


def _accuracy(experiment: Experiment, measure: str) -> str:
    banks = experiment.banks
    others = [bank for bank in banks if bank != "off"] if "off" in banks else []
    after = ["arm", "seeds", *(f"bank {b}" if b != "placebo" else b for b in banks), *(f"{b} − off" for b in others)]
    change = ["arm", "seeds", *(f"{b}: gain over the start" for b in banks), *(f"{b}: minus `{FULL}`" for b in banks)]
    return f"""## Accuracy, {TITLES[measure]}

After training, mean over seeds:

{table(after, [_after_row(experiment, arm.name, measure, others) for arm in experiment.arms])}

Against the same cell's start, and against `{FULL}` with the same seed after training, each paired by seed:

{table(change, [_change_row(experiment, arm.name, measure) for arm in experiment.arms])}"""


def _after_row(experiment: Experiment, arm: str, measure: str, others: Sequence[str]) -> list[str]:
    results = list(experiment.of_arm(arm).values())
    means = [over_seeds([r.after[bank, measure].mean for r in results], percent) for bank in experiment.banks]
    apart = [over_seeds([r.after[bank, measure].mean - r.after["off", measure].mean for r in results], points) for bank in others]
    return [f"`{arm}`", str(len(results)), *means, *apart]


def _change_row(experiment: Experiment, arm: str, measure: str) -> list[str]:
    cells, full = experiment.of_arm(arm), experiment.of_arm(FULL)
    keys = [(bank, measure) for bank in experiment.banks]
    gains = [over_seeds([r.after[key].mean - r.before[key].mean for r in cells.values()], points) for key in keys]
    both = [(cells[seed], full[seed]) for seed in cells if seed in full and arm != FULL]
    apart = [over_seeds([own.after[key].mean - other.after[key].mean for own, other in both], points) for key in keys]
    return [f"`{arm}`", str(len(cells)), *gains, *apart]


def _means(experiment: Experiment, title: str, note: str, numbers: Callable[[CellResult], dict], form: str) -> str:
    """One row per number, one column per arm; a cell that does not have the number is in no mean."""
    results = {arm.name: [numbers(r) for r in experiment.of_arm(arm.name).values()] for arm in experiment.arms}
    names = next((list(found[0]) for found in results.values() if found), [])
    means = {name: [mean_if_any([r[name] for r in found]) for found in results.values()] for name in names}
    rows = [[name, *(NOTHING if value is None else form.format(value) for value in values)] for name, values in means.items()]
    return f"## {title}\n\n{note}\n\n" + table(["", *(f"`{arm}`" for arm in results)], rows)


def _matched(experiment: Experiment) -> str:
    unmatched = [f"`{arm}` changes {', '.join(f'`{k}`' for k in keys)}." for arm, keys in experiment.unmatched.items() if keys]
    settings = " ".join(unmatched) or "Steps, targets, proposals, problems and solver groups are set alike in all arms."
    note = f"{settings} What came of it, mean over the seeds that are done; abandoned attempts not counted."
    return _means(experiment, "What was matched", note, lambda result: result.work, "{:,.0f}")


def _worse(experiment: Experiment, measures: Sequence[str]) -> str:
    keys = [(bank, measure) for measure in measures for bank in experiment.banks]
    ordered = [(c.arm, c.seed, c.result) for c in experiment.cells if c.result is not None]
    starts = [(arm, seed, key, result.before[key], result.after[key]) for arm, seed, result in ordered for key in keys]
    full = experiment.of_arm(FULL)
    pairs = [
        (arm, seed, key, full[seed].after[key], result.after[key])
        for arm, seed, result in ordered
        if arm != FULL and seed in full
        for key in keys
    ]
    return "\n\n".join(
        [
            "## Every cell that got worse",
            _below("below its own start", "before", starts),
            _below(f"below `{FULL}` with the same seed, after training", f"`{FULL}`", pairs),
        ]
    )


def _below(what: str, reference: str, pairs: Sequence[tuple]) -> str:
    """`pairs`: arm, seed, (bank arm, measure), the accuracy it is held against, its accuracy after training."""
    lower = [pair for pair in pairs if pair[4].mean < pair[3].mean - ROUNDING]
    rows = [
        [
            f"`{arm}`",
            str(seed),
            bank,
            TITLES[measure],
            percent(other.mean),
            percent(own.mean),
            with_interval(paired_difference(own.outcomes, other.outcomes), points),
        ]
        for arm, seed, (bank, measure), other, own in lower
    ]
    said = f"{len(lower)} of {len(pairs)} comparisons lie {what}"
    columns = ["arm", "seed", "bank", "measure", reference, "after", "difference"]
    return f"{said}:\n\n{table(columns, rows)}" if rows else f"{said}."


def _open_cells(experiment: Experiment) -> str:
    rows = [[f"`{c.arm}`", str(c.seed), c.state.replace("|", "\\|")] for c in experiment.cells if c.result is None]
    return f"## Cells that are missing\n\n{table(['arm', 'seed', 'state'], rows)}" if rows else ""


def _every_cell(experiment: Experiment, measures: Sequence[str]) -> str:
    keys = [(bank, measure) for measure in measures for bank in experiment.banks]
    columns = ["arm", "seed", *(f"{bank}, {TITLES[m]}" for bank, m in keys)]
    apart = "on" in experiment.banks and "off" in experiment.banks
    columns += [f"on − off, {TITLES[m]}" for m in measures if apart]
    rows = []
    for cell in experiment.cells:
        if (result := cell.result) is not None:
            moves = [f"{percent(result.before[key].mean)} → {percent(result.after[key].mean)}" for key in keys]
            on_off = [_on_minus_off(result, m) for m in measures if apart]
            rows.append([f"`{cell.arm}`", str(cell.seed), *moves, *on_off])
    return f"## Every cell\n\nBefore → after training; on − off after it, paired over questions.\n\n{table(columns, rows)}"


def _on_minus_off(result: CellResult, measure: str) -> str:
    return with_interval(paired_difference(result.after["on", measure].outcomes, result.after["off", measure].outcomes), points)
