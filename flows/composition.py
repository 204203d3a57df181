"""From settings to working parts: the only place that knows which class stands behind a setting.

Each function builds one part and hands it back; nothing is kept here but the world and the embedder, read once. Invariant: a setting
that cannot work is refused by `check`, before a run has a folder. Imports stand inside the functions, so that a command pays
for what it uses.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sesa_core.config import environment
from sesa_core.config.models import EvaluationSettings, RunConfig
from sesa_core.errors import ConfigError, JudgeRejected, MissingRun, ServiceError, WorldError
from sesa_core.training.run_folder import RunFolder, hold

if TYPE_CHECKING:
    from sesa_core.bank.store import BankStore
    from sesa_core.cards.schema import SkillCard
    from sesa_core.embed.base import Embedder
    from sesa_core.evaluation.runner import EvaluationQuestion
    from sesa_core.judge.base import Judge, JudgeStatus
    from sesa_core.judge.client import OpenAIJudge
    from sesa_core.report.terminal import Display
    from sesa_core.rollout.loop import Table
    from sesa_core.rollout.transcript import Transcript
    from sesa_core.rollout.verify import Verifier
    from sesa_core.search.base import SearchBackend
    from sesa_core.search.lance import LanceSearch
    from sesa_core.training.host import Host
    from sesa_core.training.selfplay import SelfPlayState
    from sesa_core.world.load import World
    from tasks.live_run import LiveRun

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def check(config: RunConfig) -> None:
    """Try out what a run would trip over after its folder was made: paths, the judge, the questions to evaluate.

    Raises UserError for a setting that cannot work, ServiceError for a judge that does not answer.
    """
    from sesa_core.policy.loading import positions_of, resolve_policy_path
    from sesa_core.rollout.fit import require_fit

    if needs_judge(config):
        judge_endpoint(config)
    refuse_uncounted_calls(config)
    require_fit(build_transcript(config), config, positions_of(resolve_policy_path(config.policy.path)))
    first_cards(config)
    refuse_bank_of_another_run(config)
    evaluation_questions(build_world(config), config.evaluation)
    if needs_judge(config):
        with open_judge(config) as judge:
            check_judge(judge)


def needs_judge(config: RunConfig) -> bool:
    """Whether a run calls its judge at all: to distil failures, or to verify questions."""
    return config.distill.enabled or config.validation.verifier == "judge"


def build_world(config: RunConfig) -> "World":
    """Raises ConfigError for a `world.path` that holds no world, WorldError if the shipped files are damaged."""
    if not config.world.path:
        return _world(None)
    try:
        return _world(Path(config.world.path).resolve())
    except WorldError as error:
        raise ConfigError("world.path", config.world.path, f"give a folder built by `sesa world build`, or none: {error}") from error


@lru_cache(maxsize=1)
def _world(path: Path | None) -> "World":
    """Read once: a run that is about to start asks for it when its settings are tried out, and again when it is opened."""
    from sesa_core.world.load import load_world

    return load_world(path)


def build_search(config: RunConfig, world: "World") -> "SearchBackend":
    """The backend that the settings name, over the world's passages."""
    return {"lance": _lance_search}[config.search.backend](config, world)


def _lance_search(config: RunConfig, world: "World") -> "LanceSearch":
    """The index is built once per world and shared by all runs."""
    from sesa_core.search.lance import LanceSearch, build_index

    folder = Path(config.search.index_path or Path(config.runs_dir) / ".search") / world.fingerprint
    return LanceSearch(build_index(folder, world.documents))


def build_embedder(config: RunConfig) -> "Embedder":
    return _embedder(config.bank.embedder)


@lru_cache(maxsize=1)
def _embedder(name: str) -> "Embedder":
    """Read once, though a bank is opened again and again: an embedder keeps nothing of what it was asked."""
    from sesa_core.embed import EMBEDDERS

    return EMBEDDERS[name]()


def build_transcript(config: RunConfig) -> "Transcript":
    from sesa_core.policy.loading import load_tokenizer, resolve_policy_path
    from sesa_core.rollout.transcript import Transcript

    tokenizer = load_tokenizer(resolve_policy_path(config.policy.path))
    return Transcript(tokenizer, config.rollout.profile, config.rollout.max_searches)


def build_verifier(config: RunConfig, world: "World", solver_table: "Table", judge: "Judge | None") -> "Verifier":
    from dataclasses import replace

    from sesa_core.rollout.verify import JudgeVerifier, PolicyVerifier, WorldVerifier
    from sesa_core.world.questions import resolve

    if config.validation.verifier == "world":
        return WorldVerifier(partial(resolve, world))
    if config.validation.verifier == "judge":
        return JudgeVerifier(judge, config.validation.noise_passages, config.judge.concurrency, config.validation.closed_book)
    return PolicyVerifier(
        replace(solver_table, greedy=True, max_searches=0), config.validation.noise_passages, config.validation.closed_book
    )


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
    from sesa_core.world.sampling import evaluation_questions_up_to

    count = config.evaluation.questions
    return frozenset(normalize(q.text) for split in ("dev", "test") for q in evaluation_questions_up_to(world, split, count))


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

    if config.bank.uri:
        refuse_bank_of_another_run(config, folder.name)
    return BankStore.open(folder.bank_uri(config), embedder=build_embedder(config), run=folder.name, write=write)


def refuse_bank_of_another_run(config: RunConfig, run: str | None = None) -> None:
    """A bank says where its run stands, so it serves one run. `run` is None for one that is not yet started.

    Raises ConfigError for a `bank.uri` where another run has committed boundaries.
    """
    from sesa_core.bank.store import BankStore

    if not config.bank.uri:
        return
    try:
        with BankStore.open(config.bank.uri, embedder=build_embedder(config), run=run or "", write=False) as store:
            others = sorted({row.run for row in store.boundaries()} - {run})
    except MissingRun:
        return
    if others:
        hint = "give each run a bank of its own; a new run starts from the cards of an earlier one with bank.warm_start_path"
        raise ConfigError("bank.uri", config.bank.uri, f"it is the bank of {', '.join(others)}; {hint}")


def judge_endpoint(config: RunConfig) -> tuple[str | None, str | None]:
    """(URL, key) of the judge that the settings name; (None, None) for the built-in one. Raises ConfigError."""
    if config.judge.base_url == "builtin":
        return None, None
    address, key = urlsplit(config.judge.base_url), environment.judge_api_key()
    if address.username or address.password:
        shown = config.judge.base_url.replace(address.netloc.rpartition("@")[0], "***")
        raise ConfigError("judge.base_url", shown, "settings are saved with the run: give the key in JUDGE_API_KEY, not in the URL")
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ConfigError("judge.base_url", config.judge.base_url, "give `builtin` or a URL like https://host/v1")
    if key is None and address.hostname not in LOOPBACK:
        raise ConfigError("JUDGE_API_KEY", None, f"set this environment variable to the key of {address.hostname}")
    return config.judge.base_url, key


def refuse_uncounted_calls(config: RunConfig) -> None:
    """Limits hold for calls about failures, whose use is stored: a judge that also verifies questions would exceed them unseen.

    Raises ConfigError for a limit beside `validation.verifier` judge.
    """
    limits = [n for n in ("token_budget", "cost_budget", "requests_per_minute") if getattr(config.judge, n) is not None]
    if config.validation.verifier == "judge" and limits:
        hint = f"its calls are not counted against judge.{limits[0]}; take the limit away, or verify with world or solver"
        raise ConfigError("validation.verifier", "judge", hint)


@contextmanager
def open_judge(config: RunConfig) -> Iterator["OpenAIJudge"]:
    """The judge that the settings name; the built-in one is served by this process while the block lasts."""
    from sesa_core.judge.client import OpenAIJudge
    from sesa_core.judge.server import running_server

    url, key = judge_endpoint(config)
    with nullcontext(url) if url else running_server() as address:
        yield OpenAIJudge(config.judge, address, key)


def check_judge(judge: "OpenAIJudge") -> "JudgeStatus":
    """What one small round trip shows. Raises JudgeUnavailable, or ConfigError for a model or a key that the judge does not take."""
    try:
        status = asyncio.run(judge.ping())
    except JudgeRejected as refusal:
        raise ConfigError("judge.model", judge.model, f"with this model and key the judge refuses to answer: {refusal}") from refusal
    if status.model_listed is False:
        raise ConfigError("judge.model", judge.model, f"the judge at {judge.address} does not list it")
    return status


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
        verifier=build_verifier(config, world, table, judge),
        world=parts,
        judge=judge,
        display=display,
    )


@contextmanager
def opened(folder: RunFolder, display: "Display") -> Iterator["LiveRun"]:
    """Drive a run: hold its folder, its bank, its policies and its judge. A run that this process has open is given again.

    A judge that does not answer keeps a run from its start, never from going on.
    """
    from sesa_core.training.host import make_host
    from tasks.live_run import find_live, forget, register

    known = find_live(folder.path)
    if known is not None:
        yield known
        return
    config = folder.config()
    with (
        hold(folder),
        _no_wish_to_stop(folder),
        open_judge(config) if needs_judge(config) else nullcontext() as judge,
        open_bank(folder, config, write=True) as store,
        make_host(config, folder.path) as host,
    ):
        if judge is not None:
            _greet(judge, store, display)
        run = build_live_run(folder, config, store, host, judge, display)
        register(run)
        try:
            yield run
        finally:
            forget(run)


def _greet(judge: "OpenAIJudge", store: "BankStore", display: "Display") -> None:
    """Raises what `check_judge` raises, before boundary 0; later the trouble is only told."""
    try:
        check_judge(judge)
    except (ServiceError, ConfigError) as trouble:
        if store.last_boundary() is None:
            raise
        display.note(f"{trouble}; failures will wait until it answers")


@contextmanager
def _no_wish_to_stop(folder: RunFolder) -> Iterator[None]:
    """A wish to stop is for the process that held the run when it was uttered, and ends with it."""
    folder.stop_file.unlink(missing_ok=True)
    try:
        yield
    finally:
        folder.stop_file.unlink(missing_ok=True)


def stored_evaluation(folder: RunFolder, config: RunConfig, at: int | None) -> dict[str, Any] | None:
    """What the run measured itself after a segment (the newest committed one), if it did."""
    with open_bank(folder, config, write=False) as store:
        segment = max((r.segment or 0 for r in store.boundaries()), default=0) if at is None else at
    file = folder.evaluation_file(segment)
    return json.loads(file.read_text()) if file.exists() else None


def measure_boundary(folder: RunFolder, config: RunConfig, at: int | None, display: "Display") -> dict[str, Any]:
    """Evaluate the policies and the bank of a committed segment; nothing in the run's folder changes."""
    from sesa_core.training.host import make_host

    with open_bank(folder, config, write=False) as store, make_host(config, folder.path) as host:
        run = build_live_run(folder, config, store, host, None, display)
        return run.measure(max(0, run.last_segment()) if at is None else at)


def export_policies(folder: RunFolder, config: RunConfig, at: int | None, out: Path, display: "Display") -> tuple[int, dict[str, Path]]:
    """(segment, folder by role): both policies after a committed segment (None: the newest), as Hugging Face's auto classes load them."""
    from sesa_core.training.host import make_host
    from sesa_core.types import Role

    with open_bank(folder, config, write=False) as store, make_host(config, folder.path) as host:
        run = build_live_run(folder, config, store, host, None, display)
        segment = max(0, run.last_segment()) if at is None else at
        run.stand_at(segment)
        written = {role.value: out.absolute() / role.value for role in Role}
        for role in Role:
            host.engine(role).save_hf(written[role.value])
    return segment, written


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
