"""What the commands about rollouts share: their options, what a run has stored, and which of it a person means."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from sesa_core.config.models import RunConfig
    from sesa_core.report.game_text import Shown
    from sesa_core.report.rollouts import Game
    from sesa_core.rollout.stored import StepFile, StoredRollout
    from sesa_core.training.run_folder import RunFolder

ROLES = ("proposer", "solver")
RolloutRole = Annotated[str | None, typer.Option("--role", help="Only rollouts of this role: proposer, solver.")]
Everything = Annotated[bool, typer.Option("--all", help="Also attempts that no boundary names: one in progress, or one that broke off.")]
Steps = Annotated[str | None, typer.Option("--step", help="Only these steps: 7, 3:9, 3: or :9.", metavar="A:B", show_default="all")]


@dataclass(frozen=True)
class Stored:
    """What a run has stored. `files` are never empty."""

    folder: "RunFolder"
    config: "RunConfig"
    files: "list[StepFile]"

    @property
    def reach(self) -> str:
        return f"steps {self.files[0].step} to {self.files[-1].step} are stored"


def open_stored(run: str | None, runs_dir: Path, everything: bool) -> Stored:
    """Raises MissingRun, and UserError if there is nothing to read yet."""
    from flows.composition import open_bank
    from sesa_core.errors import MissingRun, UserError
    from sesa_core.rollout.stored import step_files
    from sesa_core.training.run_folder import find_run

    folder = find_run(runs_dir, run)
    config = folder.config()
    try:
        with open_bank(folder, config, write=False) as bank:
            counting = {(b.segment, b.attempt) for b in bank.boundaries() if b.kind == "segment"}
    except MissingRun:  # the run has not come as far as a bank
        counting = set()
    files = step_files(folder.path, counting, others=everything)
    if not files:
        hint = "it has played no step" if everything else "no segment of it is committed; --all also reads steps of attempts in progress"
        raise UserError(f"{folder.name} has no rollouts to read: {hint}")
    return Stored(folder, config, files)


def refuse(option: str, value: object, allowed: str) -> NoReturn:
    from sesa_core.errors import ConfigError

    raise ConfigError(option, value, allowed)


def check_known(option: str, given: str | None, known: tuple[str, ...]) -> None:
    if given is not None and given not in known:
        refuse(option, given, f"the values are {', '.join(known)}")


def span(option: str, given: str | None, kind: type) -> tuple[float, float]:
    """`3:9`, `3:`, `:9` or `3`, both ends included."""
    low, colon, high = (given if given is not None else ":").strip().partition(":")
    try:
        first = kind(low) if low else float("-inf")
        last = (kind(high) if high else float("inf")) if colon else first
        if (low or colon) and first <= last:
            return first, last
    except ValueError:
        pass
    example = "7, 3:9, 3: or :9" if kind is int else "1, 0.2:0.8, 0.5: or :0.5"
    refuse(option, given, f"write one number or a range from low to high, both included: {example}")


def within(stored: Stored, steps: str | None) -> "list[StepFile]":
    first, last = span("--step", steps, int)
    found = [f for f in stored.files if first <= f.step <= last]
    if not found:
        refuse("--step", steps, stored.reach)
    return found


@dataclass(frozen=True)
class Choice:
    """What a person asks for; at most one of them."""

    problem: str | None = None
    target: str | None = None
    trajectory: str | None = None

    @property
    def given(self) -> list[tuple[str, str]]:
        return [(f"--{name}", value) for name, value in vars(self).items() if value is not None]


def find(stored: Stored, step: int | None, choice: Choice) -> "tuple[StepFile, Choice]":
    """The step to read, and the choice with its id in full."""
    from sesa_core.report.rollouts import find_problem, find_target

    files = stored.files if step is None else [f for f in stored.files if f.step == step]
    if not files:
        refuse("--step", step, stored.reach)
    if choice.trajectory is not None:
        return _find_trajectory(stored, step, choice.trajectory), choice
    if not choice.given:
        return files[-1], choice
    [(option, wanted)] = choice.given
    file, found, seen = (find_target if choice.target is not None else find_problem)(files, wanted)
    if file is None:
        refuse(option, wanted, f"there is no such {option[2:]} in {'the run' if step is None else f'step {step}'}{_near(wanted, seen)}")
    elif len(found) > 1:
        refuse(option, wanted, f"several begin so in step {file.step}: {', '.join(found[:5])}{' …' if len(found) > 5 else ''}")
    return file, Choice(target=found[0]) if choice.target is not None else Choice(found[0])


def _near(wanted: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(wanted, known, n=1)
    return f"; did you mean {near[0]}?" if near else "; `sesa rollouts grep` prints ids"


def _find_trajectory(stored: Stored, step: int | None, given: str) -> "StepFile":
    parts = re.fullmatch(r"(\d+)/(\d+)(?:@(\d+))?", given.strip())
    if parts is None:
        refuse("--trajectory", given, "write step/number as `sesa rollouts grep` prints it: 7/12")
    attempt = int(parts[3]) if parts[3] else None
    found = [f for f in stored.files if f.step == int(parts[1]) and (f.counts if attempt is None else f.attempt == attempt)]
    if not found:
        refuse("--trajectory", given, stored.reach if attempt is None else "attempts that no boundary names are read with --all")
    if step not in (None, found[0].step):
        refuse("--trajectory", given, f"--step says {step}")
    return found[0]


def games_of(stored: Stored, rollouts: "list[StoredRollout]", choice: Choice) -> "list[Game]":
    from sesa_core.report.rollouts import Game, game, games_of_target, telling_problem

    if choice.target is not None:
        return games_of_target(choice.target, rollouts)
    problem = choice.problem or telling_problem(rollouts)
    if choice.trajectory is not None:
        number = int(re.split("[/@]", choice.trajectory.strip())[1])
        if number >= len(rollouts):
            refuse("--trajectory", choice.trajectory, f"step {rollouts[0].place.step} has 0 to {len(rollouts) - 1}")
        problem = rollouts[number].problem_id
        if not problem:
            return [Game("", (rollouts[number],))]
    if not problem:
        return games_of_target(rollouts[0].group_id, rollouts)
    return [_with_its_posing(game(problem, rollouts), stored)]


def _with_its_posing(found: "Game", stored: Stored) -> "Game":
    """A problem from the pool was posed at an earlier step."""
    from dataclasses import replace

    from sesa_core.report.rollouts import find_posed

    if found.proposals:
        return found
    return replace(found, proposals=find_posed(stored.files, found.problem_id, found.about.place.step))


def selection(games: "list[Game]", role: str | None, sample: int | None, trajectory: str | None) -> "Shown":
    """Which rollouts of the games are wanted. Refuses what leaves none."""
    everyone = [r for g in games for r in (*g.proposals, *g.rollouts)]
    of = role or "solver"  # whose samples are meant

    def shown(r: "StoredRollout") -> bool:
        return (
            role in (None, r.role)
            and (sample is None or (r.role == of and r.sample == sample))
            and (trajectory is None or r.trajectory_id.split("@")[0] == trajectory.strip().split("@")[0])
        )

    if not any(map(shown, everyone)):
        samples = sorted({r.sample for r in everyone if r.role == of})
        if sample is not None and sample not in samples:
            refuse("--sample", sample, f"the {of}'s rollouts are {', '.join(map(str, samples))}" if samples else f"no {of} played it")
        refuse("--role", role, f"there is no such rollout by the {of} here")
    return shown
