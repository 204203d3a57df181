"""The quickstart over several seeds: what 30 steps of self-play change on questions that were never looked at.

Run it as `python -m tests.experiments.quickstart` (`--help` tells the options). Each seed is one `sesa run` in a process of
its own; a seed whose run is complete is read, not run again. `--out tests/experiments/quickstart.md` writes the document.
"""

import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean

from sesa_core.config.models import RunConfig
from sesa_core.evaluation.metrics import paired_difference
from sesa_core.training.run_folder import RunFolder
from tests.experiments.runs import command_line, complete_run, made_folder, publish, steps_of


def read_run(folder: RunFolder) -> dict:
    """The numbers of one run, by column."""
    report = folder.report()
    evaluations = [report["evaluations"][key] for key in sorted(report["evaluations"], key=int)]
    before, after = evaluations[0]["arms"], evaluations[-1]["arms"]
    steps = steps_of(folder)
    frontier, valid = ([steps[s].get(metric) for s in sorted(steps)] for metric in ("solver/frontier_share", "proposer/valid_rate"))
    on_off = [paired_difference(after["on"][key], after["off"][key]) for key in ("outcomes", "sampled_outcomes")]
    return {
        "before": {arm: (before[arm]["greedy"], before[arm]["sampled"]) for arm in before},
        "after": {arm: (after[arm]["greedy"], after[arm]["sampled"]) for arm in after},
        "on_minus_off": on_off,
        "frontier": _ends(frontier, 1),
        "frontier_ten": _ends(frontier, 10),
        "valid": _ends(valid, 1),
        "cards": report["cards"]["written"],
    }


def _ends(values: list[float | None], count: int) -> tuple[float, float]:
    """Means of the first and the last `count` steps that have the metric."""
    there = [value for value in values if value is not None]
    return fmean(there[:count]), fmean(there[-count:])


def points(value: float) -> str:
    return f"{100 * value:+.1f}"


def table(rows: dict[int, dict]) -> str:
    """One row a seed, the mean last; percentages, differences in points."""
    lines = [
        "| seed | off, T=1: before → after (gain) | off, greedy: before → after (gain) | on − off, greedy | on − off, T=1 "
        "| placebo − off, greedy | placebo − off, T=1 | frontier share, step 1 → 30 | the same, mean of steps 1-10 → 21-30 "
        "| valid, step 1 → 30 | cards |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {seed} | {' | '.join(cells(row))} |" for seed, row in rows.items()]
    gains = [points(fmean(r["after"]["off"][i] - r["before"]["off"][i] for r in rows.values())) for i in (1, 0)]
    apart = {
        arm: [points(fmean(r["after"][arm][i] - r["after"]["off"][i] for r in rows.values())) for i in (0, 1)] for arm in ("on", "placebo")
    }
    lines.append(f"| mean | {gains[0]} | {gains[1]} | {' | '.join(apart['on'] + apart['placebo'])} | | | | |")
    return "\n".join(lines)


def cells(row: dict) -> list[str]:
    before, after = row["before"], row["after"]
    gain = [f"{100 * before['off'][i]:.1f} → {100 * after['off'][i]:.1f} ({points(after['off'][i] - before['off'][i])})" for i in (1, 0)]
    on = [f"{points(mean)} ({points(low)} to {points(high)})" for mean, low, high in row["on_minus_off"]]
    placebo = [points(after["placebo"][i] - after["off"][i]) for i in (0, 1)]
    shares = [f"{row[name][0]:.2f} → {row[name][1]:.2f}" for name in ("frontier", "frontier_ten", "valid")]
    return [*gain, *on, *placebo, *shares, str(row["cards"])]


def wanted(rows: dict[int, dict]) -> str:
    """What was wanted of the quickstart, and what came out, line by line."""
    gains = {i: [100 * (r["after"]["off"][i] - r["before"]["off"][i]) for r in rows.values()] for i in (0, 1)}
    apart = {arm: [[100 * (r["after"][arm][i] - r["after"]["off"][i]) for r in rows.values()] for i in (0, 1)] for arm in ("on", "placebo")}
    kept = [r["frontier"][1] / r["frontier"][0] for r in rows.values()]
    lines = [
        ("temperature 1, bank off: at least +30 in each seed", min(gains[1]) >= 30, f"{min(gains[1]):+.1f} to {max(gains[1]):+.1f}"),
        ("greedy, bank off: at least +10 in each seed", min(gains[0]) >= 10, f"{min(gains[0]):+.1f} to {max(gains[0]):+.1f}"),
        ("bank on beats bank off, paired over seeds (greedy)", *_above_zero(apart["on"][0])),
        ("bank on beats bank off, paired over seeds (temperature 1)", *_above_zero(apart["on"][1])),
        ("placebo within 2 points of off, mean (greedy)", abs(fmean(apart["placebo"][0])) <= 2, f"{fmean(apart['placebo'][0]):+.1f}"),
        (
            "placebo within 2 points of off, mean (temperature 1)",
            abs(fmean(apart["placebo"][1])) <= 2,
            f"{fmean(apart['placebo'][1]):+.1f}",
        ),
        (
            "frontier share at the last step at least half of the first, in each seed",
            min(kept) >= 0.5,
            f"{min(kept):.2f} to {max(kept):.2f}",
        ),
    ]
    head = ["| wanted | reached | what came out |", "|---|---|---|"]
    return "\n".join(head + [f"| {what} | {'yes' if reached else '**no**'} | {came} |" for what, reached, came in lines])


def _above_zero(differences: list[float]) -> tuple[bool, str]:
    mean, low, high = paired_difference(differences, [0.0] * len(differences))
    return low > 0, f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"


def document(rows: dict[int, dict], config: RunConfig, command: str) -> str:
    evaluation, selfplay = config.evaluation, config.selfplay
    return f"""# The quickstart over {len(rows)} seeds

Written by `{command}`; do not edit.

Each row is one `sesa run`: {selfplay.segments * selfplay.steps_per_segment} steps from the shipped warm start, measured on
{evaluation.questions} questions of the {evaluation.split} split, greedy and as the mean of {evaluation.samples} samples at
temperature 1. Accuracies in percent, differences in points; on - off with its 95 % interval over the questions.
`python -m tests.experiments.quickstart` makes all of it again.

{table(rows)}

{wanted(rows)}
"""


def main() -> None:
    parser = command_line(__doc__, "runs/experiments")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--set", dest="overrides", action="append", default=[], help="a further setting, key=value")
    chosen = parser.parse_args()
    runs_dir = made_folder(chosen.runs_dir)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        folders = list(pool.map(lambda seed: complete_run(f"seed-{seed}", runs_dir, [f"seed={seed}", *chosen.overrides]), chosen.seeds))
    rows = {seed: read_run(folder) for seed, folder in zip(chosen.seeds, folders, strict=True)}
    command = shlex.join(["python", "-m", "tests.experiments.quickstart", *sys.argv[1:]])
    text = document(rows, folders[0].config(), command)
    publish(text, chosen.out)


if __name__ == "__main__":
    main()
