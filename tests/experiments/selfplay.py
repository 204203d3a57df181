"""What each part of the method is worth, and whether a long run stays healthy: an ablation, and one run of 300 steps.

Run it as `python -m tests.experiments.selfplay --jobs 2 --out tests/experiments/selfplay.md` (`--help` tells the options). Every
run is a process of its own; broken off, the same command goes on where it stopped.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sesa_core.evaluation.ablation.document import percent, table
from sesa_core.means import mean_if_any
from sesa_core.training.run_folder import RunFolder
from tests.experiments.runs import command_line, complete_run, made_folder, publish, sesa, steps_of

LONG = ["selfplay.segments=30", "evaluation.questions=200", "evaluation.samples=1", "evaluation.every_segments=3"]
CURVES = {  # a column of the document -> the metric of a step, its form
    "valid rate": ("proposer/valid_rate", "{:.2f}"),
    "frontier share": ("solver/frontier_share", "{:.2f}"),
    "pass rate": ("solver/pass_rate", "{:.2f}"),
    "entropy, solver": ("solver/entropy", "{:.3f}"),
    "entropy, proposer": ("proposer/entropy", "{:.3f}"),
    "tokens, solver": ("solver/response_tokens", "{:.0f}"),
    "tokens, proposer": ("proposer/response_tokens", "{:.0f}"),
    "repetition": ("solver/repetition", "{:.3f}"),
    "distinct questions": ("proposer/distinct_questions", "{:.2f}"),
    "near duplicates": ("proposer/near_duplicate_share", "{:.2f}"),
}
ABLATION = "ablation.md"  # in the folder of the runs, written after every cell
MEASURES = {"greedy": "greedy", "T=1": "sampled"}


def ablation(runs_dir: Path, jobs: int) -> str:
    """The document of the whole ablation; cells that are complete are read."""
    out = runs_dir / ABLATION
    where = ["--runs-dir", str(runs_dir / "ablation"), "--out", str(out)]
    cells = ["--preset", "quickstart", "--seeds", "0-4"]
    sesa(["ablate", *cells, "--jobs", str(jobs), *where], runs_dir / "ablation.screen.txt")
    return out.read_text()


def long_section(folder: RunFolder) -> str:
    """The curves of one run: a row per segment, and the accuracies where they were measured."""
    config = folder.config()
    per = config.selfplay.steps_per_segment
    rows = steps_of(folder)
    evaluations = folder.report()["evaluations"]
    banks = list(config.evaluation.arms)
    lines = []
    for segment in range(config.selfplay.segments + 1):
        steps = [rows[step] for step in range((segment - 1) * per + 1, segment * per + 1)] if segment else []
        arms = evaluations[str(segment)]["arms"] if str(segment) in evaluations else {}
        means = [_mean(steps, metric, form) for metric, form in CURVES.values()]
        accuracies = [percent(arms[bank][key]) if arms else "" for key in MEASURES.values() for bank in banks]
        lines.append([str(segment * per), *means, *accuracies])
    columns = ["step", *CURVES, *(f"{bank}, {name}" for name in MEASURES for bank in banks)]
    size, measure = config.selfplay, config.evaluation
    return f"""# One run of {size.segments * per} steps

`sesa run --name {folder.name} {" ".join(f"--set {setting}" for setting in LONG)}`: the arm `full`, seed {config.seed}, with a
learning rate that falls over all of its steps. Each row holds the means of the {per} steps up to it (a metric that a step does
not have is in no mean) and, every {measure.every_segments * per} steps, accuracy in percent on {measure.questions} questions of the
{measure.split} split with the bank {", ".join(banks)}.

{table(columns, lines)}

{_alarms(folder, {(row["segment"], row["attempt"]) for row in rows.values()})}
"""


def _mean(steps: Sequence[Mapping[str, float]], metric: str, form: str) -> str:
    value = mean_if_any([step.get(metric) for step in steps])
    return "" if value is None else form.format(value)


def _alarms(folder: RunFolder, counting: Collection[tuple[int, int]]) -> str:
    """Those of the attempts (segment, attempt) that count."""
    files = [folder.path / "segments" / f"{segment:05d}" / f"attempt-{attempt}" / "alarms.jsonl" for segment, attempt in sorted(counting)]
    alarms = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    if not alarms:
        return "No health alarm sounded."
    rows = [[str(a["step"]), a["name"], f"`{a['metric']}`", f"{a['value']:.3g}", f"{a['bound']:g}", a["means"]] for a in alarms]
    return "Health alarms:\n\n" + table(["step", "alarm", "metric", "value", "bound", "what it means"], rows)


def main() -> None:
    parser = command_line(__doc__, "runs/selfplay")
    parser.add_argument("--jobs", type=int, default=2, help="cells at the same time")
    parser.add_argument(
        "--part", choices=["ablation", "long", "all", "document"], default="all", help="run only this; document: what there is so far"
    )
    chosen = parser.parse_args()
    runs_dir = made_folder(chosen.runs_dir)
    parts = {
        "ablation": lambda: ablation(runs_dir, chosen.jobs),
        "long": lambda: long_section(complete_run("long", runs_dir, LONG)),
        "document": lambda: both((runs_dir / ABLATION).read_text(), long_section(RunFolder(runs_dir / "long"))),
        "all": lambda: both(ablation(runs_dir, chosen.jobs), long_section(complete_run("long", runs_dir, LONG))),
    }
    publish(parts[chosen.part](), chosen.out)


def both(cells: str, long: str) -> str:
    return f"<!-- Both parts: `python -m tests.experiments.selfplay --jobs 2 --out tests/experiments/selfplay.md` -->\n\n{cells}\n{long}"


if __name__ == "__main__":
    main()
