"""A real chat model plays both roles and learns: two steps over a corpus of invented places, with the transcripts.

Run it as `python -m tests.experiments.real_llm --model Qwen/Qwen2.5-0.5B-Instruct --out tests/experiments/real_llm.md` (a folder
does as well). A model of half a billion parameters takes 15 to 17 GB of memory and minutes per step.
"""

from collections.abc import Sequence
from pathlib import Path

from typer.testing import CliRunner

from flows.cli import app
from sesa_core.evaluation.ablation.document import table
from sesa_core.rollout.stored import StoredRollout, read_step, step_files
from sesa_core.training.run_folder import RunFolder
from sesa_core.types import Role
from tests.experiments.invented_coast import write
from tests.experiments.runs import command_line, complete_run, made_folder, publish, steps_of

NAME = "real-llm"
SETTINGS = (
    *("world.kind=files", "targets.hops=[1]", "bank.seed_path=null"),
    *("selfplay.steps_per_segment=2", "selfplay.segments=1"),
    *("selfplay.targets=4", "selfplay.proposals_per_target=4", "selfplay.problems=4", "selfplay.solver_group=4"),
    *("rollout.max_searches=2", "rollout.solver.max_new_tokens=64", "rollout.proposer.max_new_tokens=80"),
    *("proposer_reward.kind=valid_only", "evaluation.questions=4", "evaluation.arms=[off]"),
)
STEP = {  # a row of the document -> the metric of a step
    "questions posed": "proposer/posed",
    "valid": "proposer/valid",
    "problems played": "solver/problems",
    "solver's mean reward": "solver/reward",
    "searches per proposer's game": "proposer/searches",
    "searches per solver's game": "solver/searches",
}
UPDATE = {
    "groups with unequal rewards": "groups/live",
    "rows trained": "groups/rows",
    "optimizer steps": "optimizer_steps",
    "gradient norm": "grad_norm",
    "entropy, nats per token": "entropy",
}
ALIKE = "A group whose rewards are all equal teaches nothing and is in no update."


def play(model: str, runs_dir: Path, settings: Sequence[str]) -> RunFolder:
    """The run; one that is there is read or carried on, with the settings that it has."""
    write(runs_dir / "coast")
    given = [f"policy.path={model}", f"world.path={runs_dir / 'coast'}", *SETTINGS, *settings]
    return complete_run(NAME, runs_dir, given, "laptop-llm")


def document(folder: RunFolder, model: str, called: str, settings: Sequence[str]) -> str:
    steps = list(steps_of(folder).values())
    games = [read_step(file) for file in step_files(folder.path, {(row["segment"], row["attempt"]) for row in steps})]
    extra = "".join(f" --set {setting}" for setting in settings)
    columns = ["", *(f"step {row['step']}" for row in steps)]
    played = [[name, *(f"{row[metric]:g}" if metric in row else "none" for row in steps)] for name, metric in STEP.items()]
    reasons = sorted({key for row in steps for key in row if key.startswith("proposer/rejected/") and row[key]})
    played += [[f"rejected: {key.rpartition('/')[2]}", *(f"{row[key]:g}" for row in steps)] for key in reasons]
    updated = [
        [f"{role}: {name}", *(f"{row[key]:.3g}" if (key := f"{role}/{metric}") in row else "none" for row in steps)]
        for role in Role
        for name, metric in UPDATE.items()
    ]
    proposer, solver = (next(g for step in games for g in step if g.role is role) for role in (Role.PROPOSER, Role.SOLVER))
    return "\n\n".join(
        [
            f"""# A real chat model plays both roles and learns

`python -m tests.experiments.real_llm --model {Path(model).name}{extra}`: `sesa run --preset laptop-llm` over a corpus of
{len((folder.path.parent / "coast" / "corpus.jsonl").read_text().splitlines())} invented passages (`tests/experiments/invented_coast.py`),
about which the model, {called}, knows nothing by heart. One frozen model, two
LoRA adapters, fp32, questions verified by the solver itself, with
{" ".join(f"`{s}`" for s in SETTINGS)}. It shows that the path works, not that the model gets better: that takes more than
{len(steps)} steps.""",
            "## What was played\n\n" + table(columns, played),
            f"## What was updated\n\n{ALIKE}\n\n" + table(columns, updated),
            *(
                f"## Every game of step {row['step']}\n\n{_games(folder, row['step'], step)}"
                for row, step in zip(steps, games, strict=True)
            ),
            f"## What the proposer is told\n\n```\n{proposer.prompt}```",
            f"## What the solver is told\n\n```\n{solver.prompt}```",
        ]
    )


def _games(folder: RunFolder, step: int, games: Sequence[StoredRollout]) -> str:
    """As `sesa rollouts show` prints them: problem by problem, then each proposal that posed none."""
    problems = dict.fromkeys(g.problem_id for g in games if g.problem_id)
    others = [g.trajectory_id for g in games if g.role is Role.PROPOSER and not g.valid]
    shown = [_show(folder, "--step", str(step), "--problem", problem) for problem in problems]
    shown += [_show(folder, "--trajectory", rollout) for rollout in others]
    return "\n\n".join(f"```\n{text}\n```" for text in shown)


def _show(folder: RunFolder, *selection: str) -> str:
    command = ["rollouts", "show", "--run", folder.name, "--runs-dir", str(folder.path.parent), "--whole", *selection]
    shown = CliRunner().invoke(app, command, catch_exceptions=False)
    if shown.exit_code:
        raise SystemExit(f"`sesa {' '.join(command)}` failed: {shown.output}")
    return shown.stdout.strip()


def main() -> None:
    parser = command_line(__doc__, "runs/real_llm")
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct", help="a hub name or a folder")
    parser.add_argument("--called", help="what the document calls it (default: the same)")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="a further setting, key=value")
    chosen = parser.parse_args()
    runs_dir = made_folder(chosen.runs_dir)
    text = document(play(chosen.model, runs_dir, chosen.settings), chosen.model, chosen.called or chosen.model, chosen.settings) + "\n"
    publish(text, chosen.out)


if __name__ == "__main__":
    main()
