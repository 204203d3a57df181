"""How a game is written down: prompts, tags and passages as text and as token ids.

Owns the chat-template profile. Invariant: token ids are kept exactly as sampled; each piece (prompt, model turn,
environment text) is encoded once, on its own, and nothing is decoded and encoded again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sesa_core.text.tags import TagReader, neutralise, one_line
from sesa_core.types import Passage, Role, Target, Turn

PROMPTS = Path(__file__).parent / "prompts"
STOP_TAGS = ("</search>", "</answer>", "</question>")


@dataclass(frozen=True)
class Profile:
    """Prompt texts of one family of policies. `strict`: a turn is exactly one tag pair."""

    name: str
    solver: str
    proposer: str
    verify: str
    strict: bool
    number_passages: bool


def _profile(name: str, prefix: str = "", **rules: bool) -> Profile:
    """A profile whose prompts are `prompts/<prefix>solver.txt` and so on."""
    solver, proposer, verify = ((PROMPTS / f"{prefix}{role}.txt").read_text().strip() for role in ("solver", "proposer", "verify"))
    return Profile(name, solver, proposer, verify, **rules)


PROFILES: dict[str, Callable[[], Profile]] = {
    "tiny": lambda: _profile("tiny", "tiny_", strict=True, number_passages=False),
    "default": lambda: _profile("default", strict=False, number_passages=True),
}


class Transcript:
    """Encodes prompts and environment text with the policy's own tokenizer, and reads its turns.

    `tokenizer` is a Hugging Face fast tokenizer with a chat template.
    """

    def __init__(self, tokenizer: Any, profile: str, max_searches: int) -> None:
        self.tokenizer, self.max_searches = tokenizer, max_searches
        self.profile = PROFILES[profile]()
        self._readers = {role: TagReader(role, self.profile.strict) for role in Role}

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a turn: end of sequence, and closing tags where the tokenizer has them as one token."""
        tags = [self.tokenizer.encode(tag, add_special_tokens=False) for tag in STOP_TAGS]
        ids = {t[0] for t in tags if len(t) == 1}
        return frozenset(ids | ({self.tokenizer.eos_token_id} if self.tokenizer.eos_token_id is not None else set()))

    def solver_messages(self, question: str, cards_block: str = "") -> list[dict[str, str]]:
        """The cards stand in a system message before the question, at the same place in training, evaluation and serving."""
        text = self.profile.solver.format(question=one_line(question), max_searches=self.max_searches)
        system = [{"role": "system", "content": cards_block.rstrip()}] if cards_block else []
        return [*system, {"role": "user", "content": text}]

    def proposer_messages(self, target: Target) -> list[dict[str, str]]:
        text = self.profile.proposer.format(relation=target.relation, target=one_line(target.answer), hops=target.hops)
        return [{"role": "user", "content": text}]

    def verify_messages(self, question: str, passages: Sequence[Passage]) -> list[dict[str, str]]:
        text = self.profile.verify.format(passages=self.passages_text(passages), question=one_line(question))
        return [{"role": "user", "content": text}]

    def prompt_text(self, messages: Sequence[dict[str, str]]) -> str:
        return self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def passages_text(self, passages: Sequence[Passage]) -> str:
        """Passages as the policy reads them: data, with tags neutralised."""
        if not passages:
            return "No results."
        if self.profile.number_passages:
            return "\n".join(f'Doc {i} (Title: "{one_line(p.title)}") {neutralise(p.text)}' for i, p in enumerate(passages, 1))
        return " ".join(f"{one_line(p.title)}. {one_line(p.text)}" for p in passages)

    def information(self, passages: Sequence[Passage]) -> str:
        """What the environment writes back after a search."""
        text = self.passages_text(passages)
        return f"\n\n<information>{text}</information>\n\n" if self.profile.number_passages else f"<information>{text}</information>"

    def read(self, role: Role, token_ids: Sequence[int]) -> Turn:
        """The turn that these sampled tokens amount to."""
        text = self.tokenizer.decode(list(token_ids), skip_special_tokens=False)
        eos = self.tokenizer.eos_token
        return self._readers[role].read(text.removesuffix(eos) if eos else text)
