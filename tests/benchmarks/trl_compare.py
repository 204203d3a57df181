"""Trained tokens per second of one policy of ours against TRL's GRPOTrainer: same model, prompts, group, batch and lengths.

    pip install -e '.[benchmarks]' -c deployments/constraints-cpu.txt
    python -m tests.benchmarks.trl_compare --threads 2

Each side lives in a process of its own and plays a step when it is told to, so that the two alternate on whatever the machine
is doing. A step is everything between two sets of weights: rollout, rewards, advantages, one optimizer step, fresh weights for the
generator. Every completion has the same length (TRL is kept from ending early, we do not stop), so that both train on the same number of
tokens. TRL runs in the fastest of several configurations, found in the same run; ours is the one that the quickstart ships.
"""

import argparse
import itertools
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from sesa_core.config.environment import quiet_libraries

PACKAGES = ("trl", "verl", "transformers", "torch")


@dataclass(frozen=True)
class Task:
    """`prompts` questions of the embedded world, each behind `passages` passages, `group` completions of `tokens` tokens for each."""

    prompts: int
    passages: int
    group: int
    tokens: int
    threads: int

    @property
    def rows(self) -> int:
        return self.prompts * self.group


@dataclass(frozen=True)
class TrlVariant:
    """How TRL may be set up. `rows`: of one forward and backward pass. `dtype`: bf16 is autocast over fp32 weights."""

    rows: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}, {self.rows} rows at once"


@dataclass(frozen=True)
class Step:
    seconds: float
    tokens: int
    rollout_seconds: float | None = None  # TRL does not tell

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def reward(token_ids: Sequence[int]) -> float:
    """Share of different tokens: something to learn that costs neither side anything to compute."""
    return len(set(token_ids)) / len(token_ids)


def texts_of(task: Task) -> list[str]:
    """What the solver is asked, as its policy reads it: the question alone, or from passages as in the middle of a game."""
    from sesa_core.config.load import load_config
    from sesa_core.policy.loading import load_tokenizer, resolve_policy_path
    from sesa_core.rollout.transcript import Transcript
    from sesa_core.world.load import load_world
    from sesa_core.world.sampling import evaluation_questions

    config = load_config("quickstart")
    transcript = Transcript(load_tokenizer(resolve_policy_path(config.policy.path)), config.rollout.profile, config.rollout.max_searches)
    world = load_world()
    questions = evaluation_questions(world, "dev", task.prompts)
    if not task.passages:
        return [transcript.prompt_text(transcript.solver_messages(q.text)) for q in questions]
    found = list(itertools.islice(world.documents, 0, None, len(world.documents) // (task.prompts * task.passages)))
    own = [found[i * task.passages : (i + 1) * task.passages] for i in range(len(questions))]
    return [transcript.prompt_text(transcript.verify_messages(q.text, shown)) for q, shown in zip(questions, own, strict=True)]


# -- the two sides, each in a process of its own: a step for every True that comes, the end for a False


def play_ours(told: Connection, task: Task) -> None:
    import torch

    from sesa_core.config.load import load_config
    from sesa_core.training.host import make_host
    from sesa_core.types import Role

    torch.set_num_threads(task.threads)
    overrides = [f"grpo.mini_batch_rows={task.rows}", f"engine.threads={task.threads}", f"engine.slots={max(160, task.rows)}"]
    config, texts = load_config("quickstart", overrides=overrides), texts_of(task)
    with tempfile.TemporaryDirectory() as folder, make_host(config, Path(folder)) as host:
        engine = host.engine(Role.SOLVER)
        for number in itertools.takewhile(lambda _: told.recv(), itertools.count()):
            told.send(our_step(engine, texts, task, number))


def our_step(engine: Any, texts: Sequence[str], task: Task, number: int) -> Step:
    from sesa_core.policy.base import GenerationRequest, Sampling, TrainingRow
    from sesa_core.policy.loading import load_tokenizer, resolve_policy_path
    from sesa_core.rng import stream_seed
    from sesa_core.training.verl.advantages import group_advantages

    tokenizer = load_tokenizer(resolve_policy_path("tiny"))
    started = time.perf_counter()
    asked = [tuple(tokenizer.encode(text, add_special_tokens=False)) for text in texts for _ in range(task.group)]
    names = [str(i // task.group) for i in range(task.rows)]
    requests = [GenerationRequest(ids, stream_seed(0, "compare", number, i), Sampling(task.tokens)) for i, ids in enumerate(asked)]
    completions = engine.rollout(requests)
    rolled_out = time.perf_counter()
    advantages = group_advantages([reward(c.token_ids) for c in completions], names, normalise_by_std=True)
    rows = [
        TrainingRow(ids, c.token_ids, (1,) * len(c.token_ids), c.log_probs, advantage, name)
        for ids, c, advantage, name in zip(asked, completions, advantages, names, strict=True)
    ]
    engine.update(rows)
    engine.sync()
    return Step(time.perf_counter() - started, sum(len(c.token_ids) for c in completions), rolled_out - started)


def play_trl(told: Connection, task: Task, variant: TrlVariant) -> None:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import GRPOTrainer

    from sesa_core.policy.loading import load_tokenizer, resolve_policy_path

    torch.set_num_threads(task.threads)
    path, counted = resolve_policy_path("tiny"), []
    tokenizer = load_tokenizer(path)

    def rewards(completion_ids: list[list[int]], **kwargs: object) -> list[float]:
        counted[:] = [sum(map(len, completion_ids))]
        return [reward(ids) for ids in completion_ids]

    class Turns(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if not told.recv():
                sys.exit()
            self.started = time.perf_counter()

        def on_step_end(self, args, state, control, **kwargs):
            told.send(Step(time.perf_counter() - self.started, counted[0]))

    texts = texts_of(task)
    assert tokenizer(texts)["input_ids"] == tokenizer(texts, add_special_tokens=False)["input_ids"], "TRL would read other prompts"
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32),
            reward_funcs=rewards,
            args=trl_settings(folder, task, variant),
            train_dataset=Dataset.from_list([{"prompt": text} for text in texts]),
            processing_class=tokenizer,
            callbacks=[Turns()],
        )
        trainer.train()


def trl_settings(folder: str, task: Task, variant: TrlVariant) -> Any:
    """One optimizer step for each batch that was generated, no reference model, nothing logged, saved or recomputed."""
    from trl import GRPOConfig

    passes = task.rows // variant.rows
    return GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=variant.dtype == "bf16",
        per_device_train_batch_size=variant.rows,
        gradient_accumulation_steps=passes,
        steps_per_generation=passes,
        num_generations=task.group,
        num_iterations=1,
        max_completion_length=task.tokens,
        generation_kwargs={"min_new_tokens": task.tokens},
        temperature=1.0,
        top_k=0,
        beta=0.0,
        learning_rate=6e-4,
        gradient_checkpointing=False,
        max_steps=1_000_000,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


# -- the comparison


class Side:
    """One of the two, in its own process until it is left."""

    def __init__(self, play: Any, *arguments: object) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._line, far = spawn.Pipe()
        self._process = spawn.Process(target=play, args=(far, *arguments))
        self._process.start()
        far.close()  # so that a side that fails is heard of

    def step(self) -> Step:
        self._line.send(True)
        return self._line.recv()

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *failure: object) -> None:
        if self._process.is_alive():
            self._line.send(False)
        self._process.join()


def rates_of_variants(task: Task, steps: int, bf16: bool) -> Iterator[tuple[TrlVariant, float]]:
    """Each variant with its median rate over `steps`, after one that is not counted."""
    sizes = dict.fromkeys(r for r in (task.rows, 64, 32, 16) if r <= task.rows and task.rows % r == 0)
    for variant in (TrlVariant(r, dtype) for dtype in ("fp32", "bf16")[: 1 + bf16] for r in sizes):
        with Side(play_trl, task, variant) as trl:
            trl.step()
            yield variant, median(trl.step().rate for _ in range(steps))


def alternate(ours: Side, theirs: Side, steps: int) -> tuple[list[Step], list[Step]]:
    """`steps` of each in turn, after one of each that is not counted."""
    played = [(ours.step(), theirs.step()) for _ in range(steps + 1)][1:]
    return [mine for mine, _ in played], [other for _, other in played]


def row(task: Task, ours: Sequence[Step], theirs: Sequence[Step], variant: TrlVariant) -> str:
    mine, other = median(s.rate for s in ours), median(s.rate for s in theirs)
    share = median((s.rollout_seconds or 0.0) / s.seconds for s in ours)
    size = f"{task.prompts} x {task.group} x {task.tokens}, {task.passages} passages"
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return f"| {size} | {task.threads} | {mine:,.0f} ({share:.0%} rollout) | {other:,.0f} ({variant}) | {mine / other:.1f} | {versions} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, meaning in (
        ("prompts", 16, "prompts of a step"),
        ("passages", 2, "before the question, as after two searches; 0: the question alone"),
        ("group", 8, "completions of a prompt"),
        ("tokens", 28, "of a completion; 28 are what the quickstart's solver may write in a turn"),
        ("threads", 2, "torch threads of either side"),
        ("steps", 7, "measured steps of either side"),
        ("sweep-steps", 3, "measured steps of each configuration of TRL"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{meaning} (default {default})")
    parser.add_argument("--bf16", action="store_true", help="try TRL in bf16 too, which on a CPU is many times slower")
    asked = parser.parse_args()
    quiet_libraries()
    task = Task(asked.prompts, asked.passages, asked.group, asked.tokens, asked.threads)
    rates = {}
    for variant, rate in rates_of_variants(task, asked.sweep_steps, asked.bf16):
        print(f"TRL, {variant}: {rate:,.0f} trained tokens/s", flush=True)
        rates[variant] = rate
    best = max(rates, key=rates.__getitem__)
    with Side(play_ours, task) as ours, Side(play_trl, task, best) as theirs:
        mine, other = alternate(ours, theirs, asked.steps)
    print("| prompts x group x tokens, passages | threads | ours, tokens/s | TRL, tokens/s | ratio | versions |\n|---|---|---|---|---|---|")
    print(row(task, mine, other, best))


if __name__ == "__main__":
    main()
