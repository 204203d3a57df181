"""How fast self-play runs on a CPU, in this process, with the shipped tiny policy: `python -m tests.benchmarks.selfplay_speed`.

The first number is the generator's: sampled tokens per second with 64 sequences at once, against the same sequences one by one.
The second is a dual step of the quickstart with half of its solver rollouts, 32 proposer and at most 128 solver rollouts of up to five
turns: targets, proposals, validation, solver rollouts, both updates and fresh weights. Medians; the first step, whose pool of
earlier problems is empty, is not counted. Nothing else should run.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from sesa_core.config.environment import quiet_libraries

SIZE = ["selfplay.targets=8", "selfplay.proposals_per_target=4", "selfplay.problems=32", "selfplay.solver_group=4"]
TOKENS = 64  # of a sequence, long enough that prompts hardly count


def tokens_per_second(sequences: int, rounds: int) -> tuple[float, float]:
    """Sampled tokens per second: all sequences at once, and one after the other."""
    from flows.worlds import build_world
    from sesa_core.config.load import load_config
    from sesa_core.policy.base import GenerationRequest, Sampling
    from sesa_core.policy.generate import Generator
    from sesa_core.policy.loading import TINY, load_policy, load_tokenizer

    config = load_config("quickstart")
    tokenizer = load_tokenizer(TINY)
    questions = [q.question for q in build_world(config).evaluation_questions("dev", sequences)]
    prompts = [tuple(tokenizer.encode(f"Question: {q}", add_special_tokens=False)) for q in questions]
    requests = [GenerationRequest(prompt, seed, Sampling(TOKENS)) for seed, prompt in enumerate(prompts)]
    generator = Generator(load_policy(TINY), config.engine.slots, config.rollout.max_context)

    def rate(parts: list[list[GenerationRequest]]) -> float:
        generator.table.clear()
        start = time.perf_counter()
        count = sum(len(completion.token_ids) for part in parts for completion in generator.generate(part))
        return count / (time.perf_counter() - start)

    rate([requests])
    return median(rate([requests]) for _ in range(rounds)), median(rate([[r] for r in requests]) for _ in range(rounds))


def dual_steps(steps: int, threads: int) -> list[dict[str, float]]:
    """Metrics of `steps` steps after the first."""
    from flows.composition import build_transcript, build_verifier
    from flows.worlds import build_search, build_world, fresh_state, held_out_questions
    from sesa_core.config.load import load_config
    from sesa_core.rollout.loop import Table
    from sesa_core.training.host import make_host
    from sesa_core.training.selfplay import SelfPlay
    from sesa_core.training.step import play_step
    from sesa_core.types import Role

    with tempfile.TemporaryDirectory() as folder:
        config = load_config("quickstart", overrides=[*SIZE, f"engine.threads={threads}", f"runs_dir={folder}"])
        world = build_world(config)
        with make_host(config, Path(folder)) as host:
            engines = {role: host.engine(role) for role in Role}
            transcript, search = build_transcript(config), build_search(config, world)
            table = Table(engines[Role.SOLVER], transcript, search, config.search.top_k, config.rollout, config.seed)
            verifier, state = build_verifier(config, world, table, None), fresh_state(config, world)
            game = SelfPlay(config, engines, transcript, search, verifier, None, state, held_out_questions(config, world))
            return [play_step(game, step).metrics for step in range(1, steps + 2)][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=64, help="at once (default 64)")
    parser.add_argument("--rounds", type=int, default=3, help="of either way of generating (default 3)")
    parser.add_argument("--steps", type=int, default=10, help="measured dual steps (default 10)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1, as in the quickstart)")
    asked = parser.parse_args()
    quiet_libraries()
    import torch

    torch.set_num_threads(asked.threads)
    together, alone = tokens_per_second(asked.sequences, asked.rounds)
    print(f"rollout: {together:,.0f} tokens/s with {asked.sequences} sequences, {alone:,.0f} one by one, {together / alone:.1f} times")
    played = dual_steps(asked.steps, asked.threads)
    seconds = [m["seconds/step"] for m in played]
    print(f"dual step: {median(seconds):.2f} s (median of {len(seconds)}, {min(seconds):.2f} to {max(seconds):.2f})")
    posed, problems = (median(m[name] for m in played) for name in ("proposer/posed", "solver/problems"))
    print(f"with {posed:.0f} questions posed and {problems:.0f} problems played, by phase:")
    for name in sorted(name for name in played[0] if name.startswith("time_share/")):
        print(f"  {name.removeprefix('time_share/')}: {median(m.get(name, 0.0) for m in played):.0%}")


if __name__ == "__main__":
    main()
