"""Batched sampling from any Hugging Face causal LM: transformers' own forward and its own cache; and which generator a model gets.

Invariant: a completion depends on its request alone, as with the faster generator. Sequences are padded on the left and advance
together until the last of a wave has ended. Edge case: a cache that cannot let go of single rows keeps the ended ones to the end
of the wave, and what they draw is thrown away.
"""

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from sesa_core.policy.base import Completion, GenerationRequest
from sesa_core.policy.decoder import is_plain_decoder, overwrite
from sesa_core.policy.generate import Generator
from sesa_core.policy.live import Limits, Live

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WAVE_TOKENS = 16_384  # prompt tokens, padding included, of sequences that run together: bounds the memory of their cache


class Sampler(Protocol):
    """What a policy needs of a generator."""

    tokens_run: int

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None: ...

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]: ...


def generator_for(model: "PreTrainedModel", slots: int, max_len: int, pieces: Sequence[bytes] = ()) -> Sampler:
    """The slot generator for the families that its decoder knows, this module's for every other."""
    kind = Generator if is_plain_decoder(model.config) else ForwardGenerator
    return kind(model, slots, max_len, pieces)


class ForwardGenerator:
    """Samples from `model` with at most `slots` sequences at once, each of at most `max_len` tokens."""

    def __init__(self, model: "PreTrainedModel", slots: int, max_len: int, pieces: Sequence[bytes] = ()) -> None:
        self.model, self.slots, self.limits = model, slots, Limits(max_len, pieces)
        accepted = inspect.signature(model.forward).parameters
        self._takes_positions, self._takes_keep = "position_ids" in accepted, "logits_to_keep" in accepted
        self._caches = "past_key_values" in accepted  # else the whole text runs again for every token: slow, and right
        self.tokens_run = 0  # tokens that went through the model, padding not counted

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take copies of `weights` (Hugging Face names; a tied one once). Raises EngineError as `overwrite` does."""
        overwrite(self.model.state_dict(), weights, [name for name, _ in self.model.named_parameters()])

    @torch.inference_mode()
    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Completions in the order of `requests`. Raises EngineError as `Limits.admit` does."""
        sequences = [self.limits.admit(i, request) for i, request in enumerate(requests)]
        done: dict[int, Completion] = {}
        for wave in self._waves(sorted(sequences, key=lambda s: -len(s.prompt))):
            self._run(wave, done)
        return [done[i] for i in range(len(sequences))]

    def _waves(self, sequences: list[Live]) -> list[list[Live]]:
        """Sequences of like length together; the longest come first, so a wave's first decides how many fit."""
        waves: list[list[Live]] = []
        for sequence in sequences:
            fits = waves and len(waves[-1]) < min(self.slots, WAVE_TOKENS // len(waves[-1][0].prompt))
            if fits:
                waves[-1].append(sequence)
            else:
                waves.append([sequence])
        return waves

    def _run(self, wave: list[Live], done: dict[int, Completion]) -> None:
        longest = len(wave[0].prompt)
        ids = torch.zeros(len(wave), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, sequence in enumerate(wave):
            ids[row, longest - len(sequence.prompt) :] = torch.from_numpy(sequence.prompt)
            mask[row, longest - len(sequence.prompt) :] = 1
        ids, mask = ids.to(self.model.device), mask.to(self.model.device)
        running, cache = wave, None
        self.tokens_run += int(mask.sum())
        while True:
            logits, cache = self._forward(ids, mask, cache)
            live = [row for row, s in enumerate(running) if s.index not in done]
            ended = self.limits.advance([running[row] for row in live], logits[live])
            done.update({running[row].index: c for row, c in zip(live, ended, strict=True) if c is not None})
            live = [row for row, s in enumerate(running) if s.index not in done]
            if not live:
                return
            if len(live) < len(running) and self._drop_rows(cache, live):
                running, mask, ids = [running[row] for row in live], mask[live], ids[live]
            self.tokens_run += len(live)
            new = torch.tensor([[s.token_ids[-1]] for s in running], device=mask.device)
            ids = new if self._caches else torch.cat((ids, new), 1)
            mask = torch.cat((mask, mask.new_ones(len(running), 1)), 1)

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
        """Logits (B, V) after the last of `ids` (B, T), and the cache with them in it; `mask` (B, all so far) is 0 on padding."""
        extra: dict[str, Any] = {"logits_to_keep": 1} if self._takes_keep else {}
        if self._takes_positions:
            extra["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        if not self._caches:
            return self.model(input_ids=ids, attention_mask=mask, use_cache=False, **extra).logits[:, -1], None
        out = self.model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, **extra)
        return out.logits[:, -1], out.past_key_values

    def _drop_rows(self, cache: Any, live: list[int]) -> bool:
        """Keep only the rows `live` of the cache; False if it cannot let go of any."""
        if not self._caches:
            return True
        if not all(hasattr(layer, "batch_select_indices") for layer in cache.layers):
            return False
        cache.batch_select_indices(torch.tensor(live, device=self.model.device))
        return True
