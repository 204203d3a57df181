"""From settings to working parts: the only place that knows which class stands behind a setting.

Each function builds one part and hands it back; nothing is kept here but the embedder, read once. What comes of the world stands
in `flows/worlds.py`. Invariant: a setting that cannot work is refused by `check`, before a run has a folder. Imports stand inside
the functions, so that a command pays for what it uses.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flows.worlds import build_search, build_world, check_world, refuse_judged_answers, resolver, world_parts
from sesa_core.config import environment
from sesa_core.config.models import RunConfig
from sesa_core.errors import UNSET, ConfigError, JudgeRejected, MissingRun, ServiceError, UserError
from sesa_core.training.run_folder import RunFolder, hold

if TYPE_CHECKING:
    from sesa_core.bank.store import BankStore
    from sesa_core.cards.schema import SkillCard
    from sesa_core.embed.base import Embedder
    from sesa_core.judge.base import Judge, JudgeStatus
    from sesa_core.judge.client import OpenAIJudge
    from sesa_core.report.terminal import Display
    from sesa_core.rollout.answers import AnswerJudge
    from sesa_core.rollout.loop import Table
    from sesa_core.rollout.transcript import Transcript
    from sesa_core.rollout.verify import Verifier
    from sesa_core.training.host import Host
    from sesa_core.world.base import TrainingWorld
    from tasks.live_run import LiveRun

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def check(config: RunConfig) -> None:
    """Try out what a run would trip over after its folder was made: paths, the judge, the questions to evaluate; quick tries first.

    Raises UserError for a setting that cannot work, ServiceError for a judge that does not answer.
    """
    if needs_judge(config):
        judge_endpoint(config)
    refuse_uncounted_calls(config)
    first_cards(config)
    check_world(config)
    check_policy(config)
    refuse_bank_of_another_run(config)
    if needs_judge(config):
        with open_judge(config) as judge:
            check_judge(judge)


def check_policy(config: RunConfig) -> None:
    """Raises ConfigError for settings that the policy's tokenizer, its room or its layers do not fit."""
    from sesa_core.policy.loading import positions_of, require_adapted_layers, resolve_policy_path
    from sesa_core.rollout.fit import require_fit

    policy = resolve_policy_path(config.policy.path)
    require_fit(build_transcript(config), config, positions_of(policy))
    if config.policy.lora.rank and config.policy.lora.targets != "all-linear":
        require_adapted_layers(policy, config.policy.lora.targets)


def needs_judge(config: RunConfig) -> bool:
    """Whether a run calls its judge at all: to distil failures, to verify questions, or to check answers."""
    return config.distill.enabled or config.validation.verifier == "judge" or config.rollout.answer_check == "judge"


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
    return Transcript(tokenizer, config.rollout.profile, config.rollout.max_searches, config.rollout.worked_example)


def build_verifier(
    config: RunConfig, world: "TrainingWorld", solver_table: "Table", judge: "Judge | None", answer_judge: "AnswerJudge | None" = None
) -> "Verifier":
    """`answer_judge` is that of the run, which remembers what it decided; None where exact match alone decides."""
    from dataclasses import replace

    from sesa_core.rollout.verify import JudgeVerifier, PolicyVerifier, WorldVerifier

    if config.validation.verifier == "world":
        return WorldVerifier(resolver(config, world))
    if config.validation.verifier == "judge":
        calls = (config.judge.concurrency, config.distill.give_up_after)
        return JudgeVerifier(judge, config.validation.noise_passages, *calls, config.validation.closed_book, answer_judge)
    table = replace(solver_table, greedy=True, max_searches=0)
    return PolicyVerifier(table, config.validation.noise_passages, config.validation.closed_book, answer_judge)


def build_answer_judge(config: RunConfig, world: "TrainingWorld", judge: "Judge | None") -> "AnswerJudge | None":
    """None where exact match alone decides. Raises ConfigError where the judge must not be asked, as `check` does."""
    from sesa_core.rollout.answers import AnswerJudge

    if config.rollout.answer_check == "exact":
        return None
    refuse_judged_answers(config, world)
    refuse_uncounted_calls(config)
    return AnswerJudge(judge, config.judge.concurrency, config.distill.give_up_after)


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
    if not config.bank.uri:
        return
    from sesa_core.bank.store import BankStore

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
        raise ConfigError("JUDGE_API_KEY", UNSET, f"set this environment variable to the key of {address.hostname}")
    return config.judge.base_url, key


def refuse_uncounted_calls(config: RunConfig) -> None:
    """Limits hold for calls about failures, whose use is stored: a judge that is asked more than that would exceed them unseen.

    Raises ConfigError for a limit beside `validation.verifier` or `rollout.answer_check` judge.
    """
    limits = [n for n in ("token_budget", "cost_budget", "requests_per_minute") if getattr(config.judge, n) is not None]
    uncounted = {
        "validation.verifier": (config.validation.verifier, "verify with world or solver"),
        "rollout.answer_check": (config.rollout.answer_check, "check answers with exact"),
    }
    for key, (who, instead) in uncounted.items():
        if who == "judge" and limits:
            hint = f"its calls are not counted against judge.{limits[0]}; take the limit away, or {instead}"
            raise ConfigError(key, "judge", hint)


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
    from tasks.live_run import LiveRun

    world = build_world(config)
    engine = host.engine(Role.SOLVER)
    table = Table(engine, build_transcript(config), build_search(config, world), config.search.top_k, config.rollout, config.seed)
    answer_judge = build_answer_judge(config, world, judge)
    return LiveRun(
        folder=folder,
        config=config,
        store=store,
        seeds=tuple(first_cards(config)),
        host=host,
        solver_table=table,
        verifier=build_verifier(config, world, table, judge, answer_judge),
        world=world_parts(config, world),
        judge=judge,
        answer_judge=answer_judge,
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
            _greet(judge, store, display, config)
        run = build_live_run(folder, config, store, host, judge, display)
        register(run)
        try:
            yield run
        finally:
            forget(run)


def _greet(judge: "OpenAIJudge", store: "BankStore", display: "Display", config: RunConfig) -> None:
    """Raises what `check_judge` raises, before boundary 0; later the trouble is only told."""
    try:
        check_judge(judge)
    except (ServiceError, ConfigError) as trouble:
        if store.last_boundary() is None:
            raise
        lost = config.validation.verifier == "judge" or config.rollout.answer_check == "judge"
        display.note(f"{trouble}; failures will wait until it answers{', and what it is to decide now is dropped' if lost else ''}")


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


def require_policies(folder: RunFolder, config: RunConfig, at: int | None) -> None:
    """Raises UserError for a segment (None: the newest) that is not committed or whose checkpoints are gone. Loads no policy."""
    with open_bank(folder, config, write=False) as store:
        rows = {r.segment or 0: r for r in store.boundaries() if r.kind in ("start", "segment")}
    if not rows:
        raise UserError(f"{folder.name} has no boundary yet; go on with: {folder.resume_command}")
    left = [s for s, r in sorted(rows.items()) if all((folder.path / c["path"]).exists() for c in r.checkpoints.values())]
    asked = max(rows) if at is None else at
    if asked in left:
        return
    why = "its checkpoints are gone" if asked in rows else "no such segment is committed"
    kept = f"retention.checkpoints={config.retention.checkpoints} keeps the newest, `sesa bank tag` also others"
    raise ConfigError("--at", asked, f"{why}; policies are kept of segments {', '.join(map(str, left))} ({kept})")


def measure_boundary(folder: RunFolder, config: RunConfig, at: int | None, display: "Display") -> dict[str, Any]:
    """Evaluate the policies and the bank of a committed segment; nothing in the run's folder changes."""
    from sesa_core.training.host import make_host

    asked = config.rollout.answer_check == "judge"
    with (
        open_judge(config) if asked else nullcontext() as judge,
        open_bank(folder, config, write=False) as store,
        make_host(config, folder.path) as host,
    ):
        run = build_live_run(folder, config, store, host, judge, display)
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
