"""From settings to working parts: the only place that knows which class stands behind a setting.

Each function builds one part and hands it back; nothing is kept here. Invariant: a setting that cannot work is refused here,
before anything is trained. Imports stand inside the functions, so that a command pays for what it uses.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sesa_core.config import environment
from sesa_core.config.models import EvaluationSettings, RunConfig
from sesa_core.errors import ConfigError
from sesa_core.training.run_folder import RunFolder, hold

if TYPE_CHECKING:
    from sesa_core.bank.store import BankStore
    from sesa_core.cards.schema import SkillCard
    from sesa_core.embed.wordllama import WordLlamaEmbedder
    from sesa_core.evaluation.runner import EvaluationQuestion
    from sesa_core.judge.client import OpenAIJudge
    from sesa_core.report.terminal import Display
    from sesa_core.rollout.loop import Table
    from sesa_core.rollout.transcript import Transcript
    from sesa_core.rollout.verify import Verifier
    from sesa_core.search.lance import LanceSearch
    from sesa_core.training.host import Host
    from sesa_core.training.selfplay import SelfPlayState
    from sesa_core.world.load import World
    from tasks.live_run import LiveRun

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def build_world(config: RunConfig) -> "World":
    from sesa_core.world.load import load_world

    return load_world(Path(config.world.path) if config.world.path else None)


def build_search(config: RunConfig, world: "World") -> "LanceSearch":
    """The index over the world's passages, built once per world and shared by all runs."""
    from sesa_core.search.lance import LanceSearch, build_index

    folder = Path(config.search.index_path or Path(config.runs_dir) / ".search") / world.fingerprint
    return LanceSearch(build_index(folder, world.documents))


def build_embedder(config: RunConfig) -> "WordLlamaEmbedder":
    from sesa_core.embed.wordllama import WordLlamaEmbedder

    return {"wordllama": WordLlamaEmbedder}[config.bank.embedder]()


def build_transcript(config: RunConfig) -> "Transcript":
    from sesa_core.policy.loading import load_tokenizer, resolve_policy_path
    from sesa_core.rollout.transcript import Transcript

    tokenizer = load_tokenizer(resolve_policy_path(config.policy.path))
    return Transcript(tokenizer, config.rollout.profile, config.rollout.max_searches)


def build_verifier(config: RunConfig, world: "World", solver_table: "Table") -> "Verifier":
    from dataclasses import replace

    from sesa_core.rollout.verify import PolicyVerifier, WorldVerifier
    from sesa_core.world.questions import resolve

    if config.validation.verifier == "world":
        return WorldVerifier(partial(resolve, world))
    return PolicyVerifier(replace(solver_table, greedy=True, max_searches=0), config.validation.noise_passages)


def fresh_state(config: RunConfig, world: "World") -> "SelfPlayState":
    from sesa_core.rollout.pool import ProblemPool
    from sesa_core.rollout.targets import TargetSampler
    from sesa_core.training.selfplay import SelfPlayState
    from sesa_core.world.targets import targets

    wanted = [t for t in targets(world, "train") if t.hops in config.targets.hops]
    return SelfPlayState(TargetSampler(wanted, config.targets.sampling), ProblemPool(config.validation.pool_reset_steps))


def evaluation_questions(world: "World", settings: EvaluationSettings) -> list["EvaluationQuestion"]:
    from sesa_core.evaluation.runner import EvaluationQuestion
    from sesa_core.world.sampling import evaluation_questions

    return [
        EvaluationQuestion(
            question_id=f"{settings.split}-{number:05d}",
            question=q.text,
            reference_answers=(q.answer, *q.resolution.aliases),
            hops=q.resolution.hops,
            kind="held_out" if q.held_out else "shown",
        )
        for number, q in enumerate(evaluation_questions(world, settings.split, settings.questions))
    ]


def held_out_questions(world: "World", config: RunConfig) -> frozenset[str]:
    """Normalised evaluation questions of both splits: what no proposer may ask and no card may quote."""
    from sesa_core.text.normalize import normalize

    settings = [config.evaluation.model_copy(update={"split": split}) for split in ("dev", "test")]
    return frozenset(normalize(q.question) for s in settings for q in evaluation_questions(world, s))


def entity_names(world: "World") -> tuple[str, ...]:
    """Every name of the world, as written: what a card must not contain if its question does."""
    return (*world.countries, *world.entities_by_name)


def first_cards(config: RunConfig) -> list["SkillCard"]:
    """The cards that boundary 0 holds: the seed cards, then those of an earlier run."""
    from sesa_core.cards.seeds import load_seed_cards
    from sesa_core.cards.warm_start import load_warm_start

    path, warm = config.bank.seed_path, config.bank.warm_start_path
    seeds = load_seed_cards(None if path == "builtin" else path) if path else []
    known = {card.card_id for card in seeds}
    return seeds + [card for card in (load_warm_start(warm) if warm else []) if card.card_id not in known]


def open_bank(folder: RunFolder, config: RunConfig, write: bool) -> "BankStore":
    """The run's bank. Raises MissingRun if there is nothing to read, BankBusy if another process writes it."""
    from sesa_core.bank.store import BankStore

    return BankStore.open(folder.bank_uri(config), embedder=build_embedder(config), run=folder.name, write=write)


def judge_endpoint(config: RunConfig) -> tuple[str | None, str | None]:
    """(URL, key) of the judge that the settings name; (None, None) for the built-in one. Raises ConfigError."""
    if config.judge.base_url == "builtin":
        return None, None
    address, key = urlsplit(config.judge.base_url), environment.judge_api_key()
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ConfigError("judge.base_url", config.judge.base_url, "give `builtin` or a URL like https://host/v1")
    if key is None and address.hostname not in LOOPBACK:
        raise ConfigError("JUDGE_API_KEY", None, f"set this environment variable to the key of {address.hostname}")
    return config.judge.base_url, key


@contextmanager
def open_judge(config: RunConfig) -> Iterator["OpenAIJudge"]:
    """The judge that the settings name; the built-in one is served by this process while the block lasts."""
    from sesa_core.judge.client import OpenAIJudge
    from sesa_core.judge.server import running_server

    url, key = judge_endpoint(config)
    with nullcontext(url) if url else running_server() as address:
        yield OpenAIJudge(config.judge, address, key)


def check_judge(judge: "OpenAIJudge") -> None:
    """One small round trip before a run starts. Raises JudgeUnavailable, JudgeRejected, or ConfigError for an unknown model."""
    status = asyncio.run(judge.ping())
    if status.model_listed is False:
        raise ConfigError("judge.model", judge.model, f"the judge at {judge.address} does not list it")


def build_live_run(
    folder: RunFolder, config: RunConfig, store: "BankStore", host: "Host", judge: "OpenAIJudge | None", display: "Display"
) -> "LiveRun":
    """All parts of a run, put together."""
    from sesa_core.rollout.loop import Table
    from sesa_core.types import Role
    from tasks.live_run import LiveRun, WorldParts

    world = build_world(config)
    engine = host.engine(Role.SOLVER)
    table = Table(engine, build_transcript(config), build_search(config, world), config.search.top_k, config.rollout, config.seed)
    parts = WorldParts(
        fresh_state=partial(fresh_state, config, world),
        questions=tuple(evaluation_questions(world, config.evaluation)),
        held_out=held_out_questions(world, config),
        names=entity_names(world),
    )
    return LiveRun(
        folder=folder,
        config=config,
        store=store,
        seeds=tuple(first_cards(config)),
        host=host,
        solver_table=table,
        verifier=build_verifier(config, world, table),
        world=parts,
        judge=judge,
        display=display,
    )


@contextmanager
def opened(folder: RunFolder, display: "Display") -> Iterator["LiveRun"]:
    """Drive a run: hold its folder, its bank, its policies and its judge. A run that this process has open is given again."""
    from sesa_core.training.host import make_host
    from tasks.live_run import find_live, forget, register

    known = find_live(folder.path)
    if known is not None:
        yield known
        return
    config = folder.config()
    with (
        hold(folder),
        open_judge(config) as judge,
        open_bank(folder, config, write=True) as store,
        make_host(config, folder.path) as host,
    ):
        check_judge(judge)
        run = build_live_run(folder, config, store, host, judge, display)
        register(run)
        try:
            yield run
        finally:
            forget(run)


def measure_boundary(folder: RunFolder, config: RunConfig, at: int | None, display: "Display") -> dict[str, Any]:
    """Evaluate the policies and the bank of a committed segment; nothing in the run's folder changes."""
    from sesa_core.training.host import make_host

    with open_bank(folder, config, write=False) as store, make_host(config, folder.path) as host:
        run = build_live_run(folder, config, store, host, None, display)
        return run.measure(run.last_segment() if at is None else at)


def rebuild_world(out: Path, wordnet: Path | None, log: Callable[[str], None]) -> dict[str, Any]:
    """The world's files from their sources; which answers can be found is asked of the search that runs will use."""
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
