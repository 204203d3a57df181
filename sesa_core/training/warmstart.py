"""The recipe of the shipped warm start: `warm_start` trains the tiny policy from nothing on demonstrations.

Three stretches of one schedule: short questions and much reading practice, then clean demonstrations (mechanics), then open ones
(habits, unknown relations). Clean first matters: wrong answers from the start drown "read the asked label". Then a short polish
with a smaller rate, half of it reading practice with labels that share a word ("highest point", "lowest point"): which of them
the main schedule leaves confused is a matter of luck. Matrices learn with Muon, the rest with AdamW. One seed gives one result
on one machine; solver and proposer share it.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from sesa_core.policy.tiny import encode_segments, new_model, save_policy, train_tokenizer
from sesa_core.rng import stream, stream_seed
from sesa_core.training.demonstrations import CLEAN, OPEN, Demonstrations, Habits, Segment
from sesa_core.training.muon import Muon
from sesa_core.world.load import World

Example = tuple[list[int], list[bool]]


@dataclass(frozen=True)
class WarmStartSettings:
    """`steps` optimizer steps of `rows` demonstrations, `clean_share` of them before the habits start; then a polish of
    `polish_share` as many."""

    seed: int = 0
    steps: int = 3200
    polish_share: float = 0.2
    rows: int = 32
    clean_share: float = 0.65
    easy_share: float = 0.25
    matrix_lr: float = 4e-3
    other_lr: float = 4e-3
    warmup_steps: int = 40
    tokenizer_texts: int = 3000
    threads: int = 1
    habits: Habits = OPEN

    @property
    def polish_steps(self) -> int:
        return int(self.steps * self.polish_share)


def warm_start(out_dir: Path, world: World, settings: WarmStartSettings = WarmStartSettings(), log: Callable[[str], None] = print) -> None:  # noqa: B008
    """Train and write the policy folder (about an hour on one core)."""
    trainer = WarmStartTrainer(world, settings, log)
    trainer.train()
    save_policy(Path(out_dir), trainer.model, trainer.tokenizer)
    log(f"wrote {out_dir}")


class WarmStartTrainer:
    """Holds model, tokenizer and optimizers; `run(until)` trains up to a step and can be called again."""

    def __init__(self, world: World, settings: WarmStartSettings, log: Callable[[str], None]) -> None:
        torch.set_num_threads(settings.threads)
        torch.set_flush_denormal(True)
        self.world, self.settings, self.log, self.step = world, settings, log, 0
        self.tokenizer = demonstration_tokenizer(world, settings)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_seed(settings.seed, "warmstart", "weights"))
            self.model = new_model(len(self.tokenizer))
        self.optimizers = make_optimizers(self.model, settings)
        log(f"{sum(p.numel() for p in self.model.parameters()):,} parameters")

    def train(self) -> None:
        """The whole recipe."""
        self.run(self.settings.steps)
        self.polish()

    def polish(self) -> None:
        """The last stretch, with fresh optimizers."""
        self.optimizers = make_optimizers(self.model, self.settings)
        self.run(self.settings.steps + self.settings.polish_steps)

    def run(self, until: int) -> None:
        started, first, losses = time.monotonic(), self.step, []
        batches = self._batches()
        while self.step < until:
            losses.append(self._update(next(batches)))
            self.step += 1
            if self.step % 100 == 0:
                pace = (time.monotonic() - started) / (self.step - first)
                self.log(f"step {self.step} loss {sum(losses[-50:]) / len(losses[-50:]):.3f} ({pace:.3f} s a step)")

    def _update(self, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"] * self._schedule()
        self.model.train()
        loss = -own_log_probs(self.model, *batch).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    def _schedule(self) -> float:
        """Linear warm-up, flat to the half, then linear down to 3 %; the polish starts at a quarter and falls to 0."""
        s = self.settings
        polished = self.step - s.steps
        if polished >= 0:
            return min(1.0, (polished + 1) / s.warmup_steps) * 0.25 * (1 - polished / s.polish_steps)
        return min(1.0, (self.step + 1) / s.warmup_steps) * min(1.0, max(0.03, 2 * (1 - self.step / s.steps)))

    def _batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Padded batches of rows of similar length, 16 at a time; each sixteen has its own stream."""
        s = self.settings
        demonstrations = Demonstrations(self.world, stream(s.seed, "warmstart"))
        demonstrations.learn_vocabulary(self.tokenizer)
        while True:
            rng = stream(s.seed, "warmstart", "demonstrations", self.step)
            demonstrations.reseed(rng)
            drawn = [self._draw(demonstrations) for _ in range(s.rows * 16)]
            examples = sorted(encode_segments(self.tokenizer, drawn), key=lambda e: len(e[0]))
            chunks = [examples[i : i + s.rows] for i in range(0, len(examples), s.rows)]
            yield from (pad(chunks[i]) for i in rng.permutation(len(chunks)))

    def _draw(self, demonstrations: Demonstrations) -> list[Segment]:
        s, done = self.settings, self.step / self.settings.steps
        if done >= 1:
            return demonstrations.draw(s.habits, practice_share=0.5, alike=0.6)
        habits = CLEAN if done < s.clean_share else s.habits
        practice = max(0.2 if habits is CLEAN else 0.08, 0.6 - 0.4 * done / s.easy_share)
        return demonstrations.draw(habits, practice, easy=done < s.easy_share)


def demonstration_tokenizer(world: World, settings: WarmStartSettings) -> PreTrainedTokenizerFast:
    """A vocabulary trained on demonstrations and on all passages."""
    demonstrations = Demonstrations(world, stream(settings.seed, "warmstart", "tokenizer"))
    texts = [text for _ in range(settings.tokenizer_texts) for _, text in demonstrations.draw(CLEAN, solver_share=0.5)]
    return train_tokenizer(texts + [f"{d.title}. {d.text}" for d in world.documents])


def make_optimizers(model: LlamaForCausalLM, settings: WarmStartSettings) -> list[torch.optim.Optimizer]:
    """Muon for the weight matrices, AdamW for embeddings and norms."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "lm_head" not in n]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    optimizers = [
        Muon(matrices, lr=settings.matrix_lr),
        torch.optim.AdamW(rest, lr=settings.other_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def pad(examples: list[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids (B, T) and mask (B, T): True on the tokens to learn."""
    width = max(len(ids) for ids, _ in examples)
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    mask = torch.zeros(len(examples), width, dtype=torch.bool)
    for i, (row, own) in enumerate(examples):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(own)] = torch.tensor(own)
    return ids, mask


def own_log_probs(model: LlamaForCausalLM, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Log-probs (N,) of the masked tokens only; right padding needs no attention mask under causal attention."""
    wanted = mask[:, 1:]
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state[wanted]
    log_probs = torch.log_softmax(model.lm_head(hidden).float(), dim=-1)
    return log_probs.gather(-1, ids[:, 1:][wanted][:, None])[:, 0]
