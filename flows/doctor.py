"""What a run needs, tried one after the other: each check does the real thing once, in small.

Invariant: a check that fails never stops the ones after it; it names what is missing and what to do. Edge case: libraries
complain of damaged files in errors of their own choice, so the built-in kinds count as findings too.
"""

import asyncio
import importlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from sesa_core.config.models import RunConfig
from sesa_core.errors import SesaError

NEEDED_GIB = 2.0
BROKEN = (SesaError, OSError, ImportError, ValueError, RuntimeError, LookupError, TypeError)


@dataclass(frozen=True)
class Finding:
    what: str
    ok: bool
    detail: str


def examine(config: RunConfig) -> Iterator[Finding]:
    """All checks, each reported as soon as it is done."""
    checks: tuple[tuple[str, Callable[[RunConfig], str]], ...] = (
        ("python", check_python),
        ("packages", check_packages),
        ("disk", check_disk),
        ("world", check_world),
        ("policy", check_policy),
        ("search", check_search),
        ("bank", check_bank),
        ("judge", check_judge),
    )
    for what, check in checks:
        try:
            yield Finding(what, True, check(config))
        except BROKEN as error:
            yield Finding(what, False, " ".join(str(error).split()) or type(error).__name__)


def check_python(config: RunConfig) -> str:
    if sys.version_info[:2] != (3, 11):
        raise SesaError(f"Python {sys.version.split()[0]} runs this; SESA is made for 3.11")
    return sys.version.split()[0]


def check_packages(config: RunConfig) -> str:
    """Every dependency that SESA declares is installed in a version that it takes."""
    wanted = [Requirement(text) for text in requires("sesa") or ()]
    wanted = [r for r in wanted if r.marker is None or r.marker.evaluate()]
    wrong = [problem for r in wanted if (problem := _problem(r))]
    if wrong:
        raise SesaError(f"{'; '.join(wrong)}: run `make install`")
    return f"{len(wanted)} packages, verl {version('verl')}, torch {version('torch')}, prefect {version('prefect')}"


def _problem(requirement: Requirement) -> str:
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} is not installed"
    fits = requirement.specifier.contains(installed, prereleases=True)
    return "" if fits else f"{requirement.name} {installed} does not fit {requirement.specifier}"


def check_disk(config: RunConfig) -> str:
    place = Path(config.runs_dir).resolve()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 2**30
    if free < NEEDED_GIB:
        raise SesaError(f"{free:.1f} GiB are free at {place}, a run needs {NEEDED_GIB:.0f}")
    return f"{free:.0f} GiB free at {place}"


def check_world(config: RunConfig) -> str:
    """It is read as a whole, and has what the settings want of it."""
    from flows.worlds import build_world, check_world

    check_world(config)
    return build_world(config).summary()


def check_policy(config: RunConfig) -> str:
    """The weights load, the generator plays with them, and the other settings fit the policy."""
    from safetensors import SafetensorError

    from flows.composition import check_policy
    from sesa_core.policy.any_model import generator_for
    from sesa_core.policy.base import GenerationRequest, Sampling
    from sesa_core.policy.loading import load_policy, load_tokenizer, resolve_policy_path

    path = resolve_policy_path(config.policy.path)
    prompt = tuple(load_tokenizer(path).encode("Question:"))
    try:
        model = load_policy(path, config.policy.dtype)
    except SafetensorError as error:
        raise SesaError(f"the weights in {path} are damaged: {error}") from error
    request = GenerationRequest(prompt, 0, Sampling(max_new_tokens=2, temperature=0))
    generator_for(model, slots=1, max_len=len(prompt) + 2).generate([request])
    check_policy(config)
    return f"{config.policy.path}: {sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, generates"


def check_search(config: RunConfig) -> str:
    from flows.worlds import build_search, build_world

    world = build_world(config)
    title = next(iter(world.documents)).title
    found = build_search(config, world).search([title], config.search.top_k)[0]
    if not found:
        raise SesaError(f"the index does not find the passage {title!r}; delete the index folder, it is built again")
    return f"{title!r} -> {found[0].title!r}"


def check_bank(config: RunConfig) -> str:
    """Opens a bank in a folder of its own and loads the embedder and the seed cards."""
    from flows.composition import build_embedder, first_cards
    from sesa_core.bank.store import BankStore

    importlib.import_module("great_expectations")
    embedder, seeds = build_embedder(config), first_cards(config)
    with tempfile.TemporaryDirectory() as folder, BankStore.open(folder, embedder=embedder, run="doctor"):
        return f"LanceDB writes; {embedder.name}; {len(seeds)} seed cards"


def check_judge(config: RunConfig) -> str:
    """It answers; of settings that call none nothing is asked."""
    from flows.composition import needs_judge, open_judge

    if not needs_judge(config):
        return "none is asked with these settings"
    with open_judge(config) as judge:
        status = asyncio.run(judge.ping())
    if status.model_listed is False:
        raise SesaError(f"the judge answers but does not list the model {status.model!r}; set judge.model")
    structured = "structured output" if status.structured_output else "no structured output"
    return f"{config.judge.base_url}, {status.model}: answers in {status.seconds:.2f} s, {structured}"
