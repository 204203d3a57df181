"""From settings to a world, and from a world to the parts that a run makes of it.

A world is read once and kept, until its files change. Invariants: what a run needs of its world is tried out by `check_world`; a run
goes on with the world that it began with, or not at all. Imports stand inside the functions, as in `flows/composition.py`.
"""

import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sesa_core.config.models import RunConfig
from sesa_core.errors import UNSET, ConfigError, WorldError

if TYPE_CHECKING:
    from sesa_core.evaluation.runner import EvaluationQuestion
    from sesa_core.search.base import SearchBackend
    from sesa_core.search.lance import LanceSearch
    from sesa_core.training.selfplay import SelfPlayState
    from sesa_core.world.base import TrainingWorld
    from sesa_core.world.questions import Resolution
    from tasks.live_run import WorldParts


def check_world(config: RunConfig) -> None:
    """Try out what a run asks of its world. Raises ConfigError for files, or for settings, that cannot work."""
    world = build_world(config)
    if config.validation.verifier == "world":
        resolver(config, world)
    fresh_state(config, world)
    evaluation_questions(config, world)
    if config.rollout.answer_check == "judge":
        refuse_judged_answers(config, world)
    world.check()


def build_world(config: RunConfig) -> "TrainingWorld":
    """Raises ConfigError for a `world.path` that holds no such world, and for a world that is not the one of `world.fingerprint`."""
    settings = config.world
    folder = Path(settings.path).resolve() if settings.path else None
    world = _world(settings.kind, folder, _stamps(folder))
    if settings.fingerprint not in (None, world.fingerprint):
        before, now = (set(text.split(".")) for text in (settings.fingerprint, world.fingerprint))
        changed = ", ".join(sorted({part.partition("-")[0] for part in before ^ now}))
        hint = f"it is {world.fingerprint} now ({changed} changed): put that back; another run may take it with world.fingerprint=null"
        raise ConfigError("world.fingerprint", settings.fingerprint, hint)
    return world


def pinned(config: RunConfig) -> RunConfig:
    """The settings with what their world holds now written down."""
    world = config.world.model_copy(update={"fingerprint": build_world(config).fingerprint})
    return config.model_copy(update={"world": world})


def _stamps(folder: Path | None) -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of what lies in a world's folder: another world is read when they change."""
    if folder is None or not folder.is_dir():
        return ()
    known = ((p.name, p.stat()) for p in sorted(folder.iterdir()) if p.is_file())
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in known)


@lru_cache(maxsize=1)
def _world(kind: str, folder: Path | None, stamps: tuple) -> "TrainingWorld":
    """Read once: a run that is about to start asks for it when its settings are tried out, and again when it is opened."""
    return {"embedded": _embedded_world, "files": _files_world}[kind](folder)


def _embedded_world(folder: Path | None) -> "TrainingWorld":
    """Raises WorldError if the shipped files are damaged."""
    from sesa_core.world.embedded import EmbeddedWorld

    try:
        return EmbeddedWorld.load(folder)
    except WorldError as error:
        if folder is None:
            raise
        raise ConfigError("world.path", str(folder), f"give a folder built by `sesa world build`, or none: {error}") from error


def _files_world(folder: Path | None) -> "TrainingWorld":
    from sesa_core.world.files import FILES, FilesWorld

    if folder is None:
        raise ConfigError("world.path", UNSET, f"with world.kind=files give a folder with {', '.join(FILES)}")
    return FilesWorld(folder)


def build_search(config: RunConfig, world: "TrainingWorld") -> "SearchBackend":
    """The backend that the settings name, over the world's passages."""
    return {"lance": _lance_search}[config.search.backend](config, world)


def _lance_search(config: RunConfig, world: "TrainingWorld") -> "LanceSearch":
    """The index is built once per corpus and shared by all runs."""
    from sesa_core.search.lance import LanceSearch, build_index

    folder = Path(config.search.index_path or Path(config.runs_dir) / ".search") / world.index_name
    return LanceSearch(build_index(folder, world.documents))


def resolver(config: RunConfig, world: "TrainingWorld") -> "Callable[[str], Resolution | None]":
    """What `validation.verifier` world asks. Raises ConfigError for a world that cannot tell what a question asks."""
    if world.resolve is None:
        hint = f"a world of kind {config.world.kind} holds passages, not facts to resolve a question by; give solver or judge"
        raise ConfigError("validation.verifier", config.validation.verifier, hint)
    return world.resolve


def refuse_judged_answers(config: RunConfig, world: "TrainingWorld") -> None:
    """A closed-form world knows every name of an answer, so whoever else calls one right is wrong. Raises ConfigError there."""
    if world.resolve is not None:
        hint = f"a world of kind {config.world.kind} knows all names of its answers, so that exact match decides; give exact"
        raise ConfigError("rollout.answer_check", config.rollout.answer_check, hint)


def fresh_state(config: RunConfig, world: "TrainingWorld") -> "SelfPlayState":
    """Raises ConfigError if the world has no target of the hop counts that are wanted."""
    from sesa_core.rollout.pool import ProblemPool
    from sesa_core.rollout.targets import TargetSampler
    from sesa_core.training.selfplay import SelfPlayState

    known = world.targets()
    wanted = [t for t in known if t.hops in config.targets.hops]
    if not wanted:
        there = ", ".join(map(str, sorted({t.hops for t in known})))
        raise ConfigError("targets.hops", list(config.targets.hops), f"the targets of this world have {there}")
    return SelfPlayState(TargetSampler(wanted, config.targets.sampling), ProblemPool(config.validation.pool_reset_steps))


def evaluation_questions(config: RunConfig, world: "TrainingWorld") -> list["EvaluationQuestion"]:
    from sesa_core.evaluation.runner import EvaluationQuestion

    settings = config.evaluation
    asked = world.evaluation_questions(settings.split, settings.questions)
    return [
        EvaluationQuestion(f"{settings.split}-{number:05d}", q.question, q.reference_answers, q.hops, q.kind)
        for number, q in enumerate(asked)
    ]


def held_out_questions(config: RunConfig, world: "TrainingWorld") -> frozenset[str]:
    """Normalised evaluation questions of both splits: what no proposer may ask and no card may quote."""
    from sesa_core.text.normalize import normalize

    return frozenset(map(normalize, world.held_out(config.evaluation.questions)))


def world_parts(config: RunConfig, world: "TrainingWorld") -> "WorldParts":
    from tasks.live_run import WorldParts

    return WorldParts(
        fresh_state=partial(fresh_state, config, world),
        questions=tuple(evaluation_questions(config, world)),
        held_out=held_out_questions(config, world),
        names=tuple(world.names),
    )


def rebuild_world(out: Path, wordnet: Path | None, log: Callable[[str], None]) -> dict[str, Any]:
    """The embedded world's files from their sources; which answers can be found is asked of the search that runs will use."""
    from sesa_core.search.lance import LanceSearch, build_index
    from sesa_core.world.build import WORDNET, build_world

    with tempfile.TemporaryDirectory() as folder:

        def indexer(passages: Sequence) -> Callable[[Sequence[str]], list[list]]:
            return partial(LanceSearch(build_index(Path(folder) / "index", passages)).search, top_k=1)

        return build_world(out, indexer, wordnet or WORDNET, log=log)


def train_warm_start(out: Path, steps: int | None, seed: int, log: Callable[[str], None]) -> None:
    """The recipe of the shipped tiny policy, over the shipped world."""
    from sesa_core.training.warmstart import WarmStartSettings, warm_start
    from sesa_core.world.load import load_world

    chosen = {"steps": steps} if steps else {}
    warm_start(out, load_world(), WarmStartSettings(seed=seed, **chosen), log)
