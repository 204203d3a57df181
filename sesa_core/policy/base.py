"""The Engine protocol: what the self-play step asks of a policy, whatever host runs it.

One engine per role. The step never knows whether the engine lives in this process or on a Ray cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Sampling:
    """How to draw tokens. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 switch those cuts off.

    Log-probs are those of the distribution at `temperature`, before the top-k and top-p cuts. A sequence ends with a token
    of `stop_ids`, or with the one that completes a text of `stop_texts` in what was sampled, wherever in the token it ends.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop_ids: frozenset[int] = frozenset()
    stop_texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class GenerationRequest:
    """One sequence to continue. `seed` names its own counter-based stream: its tokens do not depend on batch mates."""

    prompt_ids: tuple[int, ...]
    seed: int
    sampling: Sampling


@dataclass(frozen=True)
class Completion:
    """`token_ids` (T,) as sampled, the stop token included; `log_probs` (T,)."""

    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    stop_reason: str  # "stop" or "length"


@dataclass(frozen=True)
class TrainingRow:
    """One rollout of the update. `advantage` is the group-centred reward of the whole response."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_mask: tuple[int, ...]
    old_log_probs: tuple[float, ...]
    advantage: float
    group_id: str


class Engine(Protocol):
    """One policy. `policy_version` counts optimizer updates since the warm start."""

    @property
    def policy_version(self) -> int: ...

    def rollout(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Completions in the order of the requests."""
        ...

    def update(self, rows: Sequence[TrainingRow]) -> dict[str, float]:
        """One GRPO update over live rows (never empty). Metrics: loss, grad_norm, kl, entropy, clip_fraction, lr."""
        ...

    def sync(self) -> None:
        """Hand the trained weights to the generator."""
        ...

    def save(self, path: Path) -> None:
        """Write a complete checkpoint (weights, optimizer, schedule, RNG, version) under `path`."""
        ...

    def load(self, path: Path) -> None:
        """Return exactly to the state that `save` wrote, the generator included."""
        ...
