"""Batched sampling for the Llama and Qwen families: live sequences advance together, one token per forward pass.

Owns the schedule. Invariant: a completion depends on its request alone, whatever shares the batch (up to the last bits of
floating-point sums). Sequences join as soon as a slot is free and leave when they end; a finished one keeps its keys and values,
so the next turn of a dialogue and the other members of a group pay only for tokens that are new. Edge case: a prompt of which a
slot that is being filled holds much waits one wave and copies it.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from sesa_core.policy.base import Completion, GenerationRequest
from sesa_core.policy.decoder import SlotDecoder
from sesa_core.policy.live import Limits, Live
from sesa_core.policy.slots import Seat, SlotTable

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WAVE_TOKENS = 4096  # prompt tokens, padding included, that one prefill takes in: bounds its memory


class Generator:
    """Samples from `model` (any of decoder.FAMILIES) with `slots` sequences at once, each of at most `max_len` tokens.

    `pieces` are the bytes that each token id stands for (`stopping.token_pieces`); only requests with `stop_texts` need them.
    """

    def __init__(self, model: "PreTrainedModel", slots: int, max_len: int, pieces: Sequence[bytes] = ()) -> None:
        self.decoder = SlotDecoder(model, slots, max_len)
        self.table = SlotTable(slots, max_len)
        self.limits = Limits(max_len, pieces)
        self.tokens_run = 0  # tokens that went through the model, padding not counted
        self.tokens_reused = 0  # prompt tokens whose keys and values were there already

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take copies of `weights` (Hugging Face names); everything cached is forgotten. Raises EngineError as `overwrite` does."""
        self.table.clear()
        self.decoder.load_weights(weights)

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Completions in the order of `requests`. Raises EngineError for a prompt that is empty or leaves no room in `max_len`,
        and for stop texts without `pieces`."""
        waiting = deque(self.limits.admit(i, r) for i, r in enumerate(requests))
        done: list[Completion | None] = [None] * len(waiting)
        running: dict[int, Live] = {}
        try:
            while waiting or running:
                self._advance(running, done)
                while waiting and self._join(waiting, running, done):
                    pass
        finally:
            if waiting or running:  # interrupted: slots may be half written
                self.table.clear()
        return [c for c in done if c is not None]

    def _join(self, waiting: deque[Live], running: dict[int, Live], done: list[Completion | None]) -> bool:
        """Seat as many waiting sequences as one prefill takes, run them; False when none could be seated."""
        wave: list[tuple[Seat, Live]] = []
        postponed: list[Live] = []
        longest = 0
        while waiting and not self.table.busy.all():
            sequence = waiting.popleft()
            seat = self.table.seat(sequence.prompt)
            if seat is None:
                postponed.append(sequence)
                continue
            wave.append((seat, sequence))
            longest = max(longest, len(sequence.prompt) - seat.reused)
            if longest * (len(wave) + 1) > WAVE_TOKENS:
                break
        waiting.extendleft(reversed(postponed))
        if not wave:
            return False
        logits = self._prefill(wave, longest)
        self.table.filled()
        for seat, sequence in wave:
            running[seat.slot] = sequence
        self._take([seat.slot for seat, _ in wave], logits, running, done)
        return True

    def _prefill(self, wave: list[tuple[Seat, Live]], longest: int) -> torch.Tensor:
        """Run each prompt from where its reused prefix ends; logits (B, V) of the last prompt tokens."""
        device = self.decoder.device
        copies = [seat for seat, _ in wave if seat.reused and seat.source != seat.slot]
        if copies:
            sources = torch.tensor([seat.source for seat in copies], device=device)
            targets = torch.tensor([seat.slot for seat in copies], device=device)
            self.decoder.copy_prefixes(sources, targets, max(seat.reused for seat in copies))
        ids = np.zeros((len(wave), longest), dtype=np.int64)
        starts = np.array([seat.reused for seat, _ in wave])
        counts = np.array([len(sequence.prompt) for _, sequence in wave]) - starts
        for row, (seat, sequence) in enumerate(wave):
            ids[row, : counts[row]] = sequence.prompt[seat.reused :]
        # Padding runs on behind the prompt's end: what it writes there is overwritten before anything reads it.
        positions = np.minimum(starts[:, None] + np.arange(longest), self.limits.max_len)
        self.tokens_run += int(counts.sum())
        self.tokens_reused += int(starts.sum())
        rows = torch.tensor([seat.slot for seat, _ in wave], device=device)
        arrays = (torch.from_numpy(a).to(device) for a in (ids, positions, counts - 1))
        return self.decoder.forward(rows, *arrays)

    def _advance(self, running: dict[int, Live], done: list[Completion | None]) -> None:
        """One more token for every running sequence."""
        if not running:
            return
        slots = sorted(running)
        last = np.array([running[s].token_ids[-1] for s in slots])
        index = np.array(slots)
        device = self.decoder.device
        positions = torch.from_numpy(self.table.length[index])[:, None].to(device)
        tokens = torch.from_numpy(last)[:, None].to(device)
        zeros = torch.zeros(len(slots), dtype=torch.long, device=device)
        logits = self.decoder.forward(torch.from_numpy(index).to(device), tokens, positions, zeros)
        self.table.append(index, last)
        self.tokens_run += len(slots)
        self._take(slots, logits, running, done)

    def _take(self, slots: list[int], logits: torch.Tensor, running: dict[int, Live], done: list[Completion | None]) -> None:
        """Draw a token for each of `slots`; sequences that end leave `running`, their slots stay cached."""
        sequences = [running[s] for s in slots]
        for slot, sequence, completion in zip(slots, sequences, self.limits.advance(sequences, logits), strict=True):
            if completion is not None:
                done[sequence.index] = completion
                del running[slot]
                self.table.release(slot)
