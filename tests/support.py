"""Small things that several tests share: a tokenizer, a policy that plays a script, search that lists or is down."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from sesa_core.errors import SearchUnavailable
from sesa_core.policy.base import Completion, GenerationRequest, TrainingRow
from sesa_core.types import Passage

SPECIAL = [
    "<pad>",
    "<eos>",
    "<search>",
    "</search>",
    "<information>",
    "</information>",
    "<answer>",
    "</answer>",
    "<question>",
    "</question>",
]
TEMPLATE = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"


def small_tokenizer(tags_are_tokens: bool = True) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with a chat template; the transcript tags are special tokens or ordinary text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    special = SPECIAL if tags_are_tokens else SPECIAL[:2]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["Question: What is the capital of Chad? Answer: N'Djamena."] * 20, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
    fast.chat_template = TEMPLATE
    return fast


class ScriptedEngine:
    """A policy whose turns are written by `script(prompt text so far, seed) -> text`. Learns nothing, counts its updates."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, script: Callable[[str, int], str]) -> None:
        self.tokenizer, self.script = tokenizer, script
        self.policy_version = 0
        self.batches: list[list[TrainingRow]] = []
        self.sampled: list[tuple[int, ...]] = []  # the token ids of every completion, in the order in which they were asked for

    def rollout(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        return [self._complete(r) for r in requests]

    def _complete(self, request: GenerationRequest) -> Completion:
        text = self.script(self.tokenizer.decode(list(request.prompt_ids)), request.seed)
        ids = self.tokenizer.encode(text, add_special_tokens=False)[: request.sampling.max_new_tokens]
        self.sampled.append(tuple(ids))
        return Completion(tuple(ids), (-0.5,) * len(ids), "stop" if ids and ids[-1] in request.sampling.stop_ids else "length")

    def update(self, rows: Sequence[TrainingRow]) -> dict[str, float]:
        self.batches.append(list(rows))
        self.policy_version += 1
        return {"loss": 0.0, "grad_norm": 0.0}

    def sync(self) -> None:
        pass

    def save(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        (path / "version.txt").write_text(str(self.policy_version))

    def load(self, path: Path) -> None:
        self.policy_version = int((path / "version.txt").read_text())


class ListedSearch:
    """A search backend over a handful of passages: a passage is found by words of its title."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages, self.calls = list(passages), 0

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Passage]]:
        self.calls += 1
        return [[p for p in self.passages if set(q.lower().split()) & set(p.title.lower().split())][:top_k] for q in queries]


class DownSearch:
    """A search service that does not answer."""

    def search(self, queries, top_k):
        raise SearchUnavailable("no answer")
