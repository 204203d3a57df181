"""What a step plays with (`SelfPlay`) and what it remembers from step to step (`SelfPlayState`).

Invariant: the state is small, plain and saved with every segment, so that a resumed run draws the same targets, knows the
same recent questions, holds the same pool, compares with the same mean and counts on towards the same alarms as one that was
never interrupted.
"""

import json
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.config.models import RunConfig
from sesa_core.policy.base import Engine
from sesa_core.rollout.answers import AnswerJudge
from sesa_core.rollout.loop import Table
from sesa_core.rollout.pool import ProblemPool
from sesa_core.rollout.solver import CardRules, card_style
from sesa_core.rollout.targets import TargetSampler
from sesa_core.rollout.transcript import Transcript
from sesa_core.rollout.verify import Verifier
from sesa_core.search.base import SearchBackend
from sesa_core.types import Role


@dataclass
class SelfPlayState:
    """Mutable; owned by the trainer process alone."""

    sampler: TargetSampler
    pool: ProblemPool
    recent_questions: deque[str] = field(default_factory=lambda: deque(maxlen=2000))
    step: int = 0  # the last step that was played
    proposer_mean: float | None = None  # of the proposer's rewards, where they are compared with it; None before the first
    streaks: dict[str, int] = field(default_factory=dict)  # of `health.Health`

    def save(self, path: Path) -> None:
        content = {
            "step": self.step,
            "pass_rates": self.sampler.state(),
            "pool": self.pool.state(),
            "recent_questions": list(self.recent_questions),
            "proposer_mean": self.proposer_mean,
            "streaks": self.streaks,
        }
        path.write_text(json.dumps(content, ensure_ascii=False, sort_keys=True))

    def load(self, path: Path) -> None:
        content = json.loads(path.read_text())
        self.step = content["step"]
        self.sampler.restore(content["pass_rates"])
        self.pool.restore(content["pool"])
        self.recent_questions = deque(content["recent_questions"], maxlen=self.recent_questions.maxlen)
        self.proposer_mean = content.get("proposer_mean")  # states of an earlier SESA have neither
        self.streaks = content.get("streaks", {})


@dataclass(frozen=True)
class SelfPlay:
    """Everything that a step needs, built once by whoever composes a run."""

    config: RunConfig
    engines: Mapping[Role, Engine]
    transcript: Transcript
    search: SearchBackend
    verifier: Verifier
    snapshot: BankSnapshot | None  # None: the bank is switched off
    state: SelfPlayState
    held_out: Collection[str] = frozenset()  # normalised evaluation questions
    answer_judge: AnswerJudge | None = None  # None: an answer is right by exact match alone

    def table(self, role: Role) -> Table:
        return Table(self.engines[role], self.transcript, self.search, self.config.search.top_k, self.config.rollout, self.config.seed)

    def card_rules(self) -> CardRules:
        bank = self.config.bank
        return CardRules(card_style(bank, self.transcript), bank.withhold, bank.decoy_share)
