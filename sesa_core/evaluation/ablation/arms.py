"""The arms of an ablation: each is a name and the settings that it changes.

Invariant: no arm changes what makes a step as large as the others' or how accuracy is measured; `matched` tells where a person's
own arm does. Edge case: a value may hold commas inside brackets or quotes (`a:targets.hops=[1,2],seed=3` has two settings).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sesa_core.config.models import RunConfig
from sesa_core.errors import ConfigError

FULL = "full"
ARM_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
OWNED = {"seed": "--seeds", "runs_dir": "--runs-dir", "selfplay.segments": "--segments"}  # keys that options of `sesa ablate` set


@dataclass(frozen=True)
class Arm:
    """`changes` are `key=value`, laid over the settings of the whole experiment."""

    name: str
    changes: tuple[str, ...]
    meaning: str


_NO_CARDS_AT_THE_START = ("bank.seed_path=null", "bank.warm_start_path=null")
_BASE_REWARD = "proposer_reward.kind=one_minus_pass_rate"

ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm(FULL, (), "the settings as they are"),
        Arm("no_frontier_shaping", (_BASE_REWARD,), "the proposer earns one minus the pass rate, as in the base system"),
        Arm("no_memory_priming", _NO_CARDS_AT_THE_START, "the bank starts empty"),
        Arm("no_failure_distillation", ("distill.enabled=false",), "failures are recorded, the judge is told of none"),
        Arm(
            "ssp",
            (
                "bank.enabled=false",
                *_NO_CARDS_AT_THE_START,
                "distill.enabled=false",
                _BASE_REWARD,
                "grpo.baseline=group",
                "targets.sampling=uniform",
            ),
            "the published baseline's loop: no cards, no distillation, uniform targets, plain groups; the verifier is that of all arms",
        ),
        Arm("fixed_proposer", ("selfplay.freeze_proposer=true",), "the proposer plays but does not learn"),
    )
}


def choose_arms(names: str | None, added: Sequence[str]) -> list[Arm]:
    """The arms named in `names` (commas between; None: all that ship), then those of `added` (`name:key=value,...`), in order.

    Raises ConfigError for a name that is unknown, malformed or given twice.
    """
    own = [parse_arm(text) for text in added]
    twice = [arm.name for place, arm in enumerate(own) if arm.name in {other.name for other in own[:place]}]
    if twice:
        raise ConfigError("--arm", twice[0], f"two arms are called {twice[0]}")
    known = {**ARMS, **{arm.name: arm for arm in own}}
    asked = [n.strip() for n in names.split(",")] if names is not None else list(ARMS)
    unknown = [n for n in asked if n not in known]
    if unknown:
        raise ConfigError("--arms", unknown[0], f"the arms are {', '.join(known)}")
    chosen = [*asked, *(arm.name for arm in own if arm.name not in asked)]
    if len(set(chosen)) < len(chosen):
        raise ConfigError("--arms", names, "it names an arm twice")
    return [known[n] for n in chosen]


def parse_arm(text: str) -> Arm:
    """`name:key=value,key=value` to an arm. Raises ConfigError."""
    name, colon, settings = text.partition(":")
    changes = tuple(part.strip() for part in split_settings(settings))
    if not colon or not ARM_NAME.fullmatch(name) or not all("=" in c for c in changes):
        raise ConfigError("--arm", text, "write name:key=value,key=value; a name holds lower-case letters, digits and underscores")
    if name in ARMS:
        raise ConfigError("--arm", text, f"{name} is an arm that ships; give yours another name")
    for change in changes:
        key = change.partition("=")[0].strip()
        if key in OWNED:
            raise ConfigError("--arm", text, f"{key} is the same in all arms: set it with {OWNED[key]}")
    return Arm(name, changes, ", ".join(changes))


def split_settings(text: str) -> list[str]:
    """At commas that stand outside brackets and quotes."""
    parts = re.findall(r"""(?:\[[^\]]*\]|\{[^}]*\}|"[^"]*"|'[^']*'|[^,])+""", text)
    return [p for p in parts if p.strip()] or [text]


def require_same_measure(arm: Arm, config: RunConfig, full: RunConfig) -> None:
    """Raises ConfigError for an arm that is measured in another way than the experiment."""
    if config.evaluation != full.evaluation:
        raise ConfigError("--arm", arm.name, "evaluation.* is the same in all arms: set it with --set")


def matched(config: RunConfig, full: RunConfig) -> list[str]:
    """Keys of a step's size that differ from the experiment's; empty where steps and rollouts are matched."""
    keys = ("targets", "proposals_per_target", "problems", "solver_group", "steps_per_segment", "segments")
    return [f"selfplay.{k}" for k in keys if getattr(config.selfplay, k) != getattr(full.selfplay, k)]
