"""How a game is written down: prompts, tags and passages as text and as token ids.

Invariant: token ids are kept exactly as sampled; each piece (prompt, model turn, environment text) is encoded once, on its
own, and nothing is decoded and encoded again. Edge case: text from outside may spell any special token of the tokenizer, so
it is made harmless here, where the tokenizer is known.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from sesa_core.rollout.example import EXAMPLES, QUESTION, TARGET
from sesa_core.rollout.profiles import PROFILES
from sesa_core.text.tags import Neutraliser, one_line
from sesa_core.types import Passage, Role, Target, Turn


class Transcript:
    """Encodes prompts and environment text with the policy's own tokenizer, and reads its turns.

    `tokenizer` is a Hugging Face fast tokenizer with a chat template; `profile` one of PROFILES.
    """

    def __init__(self, tokenizer: Any, profile: str, max_searches: int, worked_example: bool = False) -> None:
        self.tokenizer, self.max_searches, self.worked_example = tokenizer, max_searches, worked_example
        self.profile = PROFILES[profile]()
        self._readers = {role: self.profile.reader(role) for role in Role}
        special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        self._neutral = Neutraliser([*special, *tokenizer.all_special_tokens])

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a turn: end of sequence, and what the profile names where the tokenizer has it as one token."""
        eos = self.tokenizer.eos_token_id
        return self._single(self.profile.ends) | ({eos} if eos is not None else set())

    @cached_property
    def stop_texts(self) -> tuple[str, ...]:
        """Texts that end a turn: what the profile names and the tokenizer writes in several tokens."""
        return tuple(text for text in self.profile.ends if not self.is_token(text))

    @cached_property
    def _closing_ids(self) -> frozenset[int]:
        return self._single(self.profile.closing)

    def _single(self, texts: Iterable[str]) -> frozenset[int]:
        return frozenset(self.encode(text)[0] for text in texts if self.is_token(text))

    def is_token(self, text: str) -> bool:
        """Whether the tokenizer writes `text` as one token of that name; a token for whatever is unknown does not count."""
        return self.tokenizer.convert_ids_to_tokens(list(self.encode(text))) == [text]

    def solver_messages(self, question: str, cards_block: str = "") -> list[dict[str, str]]:
        """The cards stand in a system message before the question, at the same place in training, evaluation and serving."""
        text = self._solver_text(question)
        return [*self._system(self._neutral(cards_block.rstrip())), *self._example(Role.SOLVER), {"role": "user", "content": text}]

    def _solver_text(self, question: str) -> str:
        return self.profile.solver.format(question=self._line(question), max_searches=self.max_searches, results=self.profile.results)

    def proposer_messages(self, target: Target) -> list[dict[str, str]]:
        """A target of no relation is named by its answer alone."""
        return [*self._system(), *self._example(Role.PROPOSER), {"role": "user", "content": self._proposer_text(target)}]

    def _proposer_text(self, target: Target) -> str:
        answer, relation = self._line(target.answer), self._line(target.relation)
        labelled = f"{relation}: {answer}" if relation else answer
        searches, times = (
            ("one search", "once") if target.hops == 1 else (f"{target.hops} searches, one after the other,", f"{target.hops} times")
        )
        return self.profile.proposer.format(
            target=answer, labelled_target=labelled, hops=target.hops, searches=searches, times=times, results=self.profile.results
        )

    def _example(self, role: Role) -> list[dict[str, str]]:
        """A user's message and all of the game that follows it, as one message of the policy."""
        if not self.worked_example:
            return []
        example = EXAMPLES[role]
        asked = self._solver_text(QUESTION) if role is Role.SOLVER else self._proposer_text(TARGET)
        turns = [self.profile.call.replace("{query}", query) + self.reply_text(found) for query, found in example.searches]
        return [{"role": "user", "content": asked}, {"role": "assistant", "content": "".join(turns) + example.final}]

    def verify_messages(self, question: str, passages: Sequence[Passage]) -> list[dict[str, str]]:
        text = self.profile.verify.format(passages=self.passages_text(passages), question=self._line(question))
        return [{"role": "user", "content": text}]

    def _system(self, cards: str = "") -> list[dict[str, str]]:
        content = "\n\n".join(part for part in (self.profile.system, cards) if part)
        return [{"role": "system", "content": content}] if content else []

    def prompt_text(self, messages: Sequence[dict[str, str]]) -> str:
        return self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def passages_text(self, passages: Sequence[Passage]) -> str:
        """Passages as the policy reads them: data, with tags and special tokens neutralised."""
        if not passages:
            return "No results."
        if self.profile.number_passages:
            return "\n".join(f'Doc {i} (Title: "{self._line(p.title)}") {self._neutral(p.text)}' for i, p in enumerate(passages, 1))
        return " ".join(f"{self._line(p.title)}. {self._line(p.text)}" for p in passages)

    def _line(self, text: str) -> str:
        return one_line(text, self._neutral)

    def reply_text(self, passages: Sequence[Passage], closed: bool = False) -> str:
        """What the environment writes back after a search. `closed`: the policy closed its chat turn itself."""
        opening = "" if closed or not self.profile.closing else self.profile.closing[0]
        return opening + self.profile.reply.format(passages=self.passages_text(passages))

    def reply(self, passages: Sequence[Passage], sampled: Sequence[int]) -> tuple[int, ...]:
        """The same as token ids, after a turn of the tokens `sampled`."""
        return self.encode(self.reply_text(passages, closed=bool(sampled) and sampled[-1] in self._closing_ids))

    def read(self, role: Role, token_ids: Sequence[int]) -> Turn:
        """The turn that these sampled tokens amount to."""
        whole = self.tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        text = whole
        for mark in (self.tokenizer.eos_token, *self.profile.closing):
            text = text.removesuffix(mark) if mark else text
        return self._readers[role].read(text, ended=text != whole)
