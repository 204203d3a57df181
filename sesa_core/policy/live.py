"""A request on its way through a generator: what it has drawn so far, and when it ends.

Invariant: a sequence's tokens depend on its request and its logits alone: its uniform numbers are drawn from its own stream before
the first token. Edge case: a sequence that reaches the generator's `max_len` ends with stop reason "length".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from sesa_core import rng
from sesa_core.errors import EngineError
from sesa_core.policy.base import Completion, GenerationRequest
from sesa_core.policy.sampling import draw
from sesa_core.policy.stopping import StopTexts


@dataclass
class Live:
    """One request: where it stands in the caller's list, its uniforms, what it has drawn."""

    index: int
    request: GenerationRequest
    prompt: np.ndarray
    uniforms: list[float]
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    stop_texts: StopTexts | None = None


class Limits:
    """What a generator knows of its sequences: how long one may get, and the bytes that each token id stands for
    (`stopping.token_pieces`; only requests with `stop_texts` need them)."""

    def __init__(self, max_len: int, pieces: Sequence[bytes]) -> None:
        self.max_len, self.pieces = max_len, pieces

    def admit(self, index: int, request: GenerationRequest) -> Live:
        """Raises EngineError for a prompt that is empty or leaves no room in `max_len`, and for stop texts without `pieces`."""
        size = len(request.prompt_ids)
        if not 0 < size < self.max_len:
            raise EngineError(f"a prompt of {size} tokens cannot be continued: the generator holds sequences of 2 to {self.max_len} tokens")
        stop_texts = request.sampling.stop_texts
        if stop_texts and not self.pieces:
            raise EngineError("a request has stop texts, but the generator was not told what its tokens stand for")
        uniforms = rng.stream(request.seed, "tokens").random(request.sampling.max_new_tokens).tolist()
        prompt = np.asarray(request.prompt_ids, dtype=np.int64)
        return Live(index, request, prompt, uniforms, stop_texts=StopTexts(stop_texts) if stop_texts else None)

    def advance(self, sequences: Sequence[Live], logits: torch.Tensor) -> list[Completion | None]:
        """Draw a token for each of `sequences` from `logits` (B, V); the completion of each that ends with it."""
        settings = [s.request.sampling for s in sequences]
        tokens, log_probs = draw(logits, settings, [s.uniforms[len(s.token_ids)] for s in sequences])
        ended: list[Completion | None] = []
        for sequence, token, log_prob in zip(sequences, tokens, log_probs, strict=True):
            sequence.token_ids.append(token)
            sequence.log_probs.append(log_prob)
            reason = self._stop_reason(sequence, token)
            ended.append(Completion(tuple(sequence.token_ids), tuple(sequence.log_probs), reason) if reason else None)
        return ended

    def _stop_reason(self, sequence: Live, token: int) -> str:
        sampling, drawn = sequence.request.sampling, len(sequence.token_ids)
        if token in sampling.stop_ids or (sequence.stop_texts is not None and sequence.stop_texts.completed_by(self._piece(token))):
            return "stop"
        full = drawn >= sampling.max_new_tokens or len(sequence.prompt) + drawn >= self.max_len
        return "length" if full else ""

    def _piece(self, token: int) -> bytes:
        return self.pieces[token] if token < len(self.pieces) else b""  # models often have more rows than the tokenizer has tokens
