"""What a flow says while it runs where no terminal is, and what it leaves at the end."""

import json
import logging
import os
from collections import Counter
from typing import Any

from sesa_core.config.models import RunConfig
from sesa_core.report.pace import STEP, Pace, Work
from sesa_core.report.summary import read_steps, summarise
from sesa_core.report.terminal import Display, PlainDisplay
from sesa_core.training.run_folder import RunFolder
from tasks.evaluation import evaluation_due
from tasks.live_run import GREEDY, SAMPLED, LiveRun

# Seconds on two cores of a small laptop with the tiny policy. Wrong elsewhere, and stretched by what is seen there.
ROLLOUT_S, TRAINED_ROLLOUT_S = 0.015, 0.03
JUDGE_CALL_S, BOUNDARY_S = 0.2, 5.0


def flow_display(logger: logging.Logger | logging.LoggerAdapter) -> Display:
    """One line per step in the flow run's own log; the flow tells it what to expect."""
    return PlainDisplay(logger.info, Pace(Work(0, 0)))


def expected_work(config: RunConfig, folder: RunFolder, committed: int | None = None) -> Work:
    """What a run has before it after `committed` segments: what a display needs to name the time left.

    None: the bank is not open yet. A segment has a folder only if the one before it was committed.
    """
    plan, measure = config.selfplay, config.evaluation
    done = max(0, len(folder.segments()) - 1) if committed is None else max(0, committed)
    ahead = range(done + 1, plan.segments + 1)
    judged = int(bool(ahead)) if config.distill.overlap else len(ahead)  # what overlaps costs no time of its own
    judged *= config.distill.enabled
    evaluations = sum(evaluation_due(config, k) and not folder.evaluation_file(k).exists() for k in (done, *ahead))
    stages = Counter({GREEDY: evaluations, SAMPLED: evaluations if measure.samples else 0, "distil": judged, "boundary": len(ahead)})
    return Work(plan.segments * plan.steps_per_segment, done * plan.steps_per_segment, stages, guesses(config))


def most_that_judging_uses(config: RunConfig, work: Work) -> str | None:
    """For a person, before a run goes on: what the judge may be asked for at most; None for the built-in one, which costs nothing."""
    judge, steps = config.judge, work.steps - work.steps_done
    about_failures = steps // config.selfplay.steps_per_segment * config.queue.per_boundary if config.distill.enabled else 0
    verified = 0 if config.validation.verifier == "world" else (1 + config.validation.closed_book) * steps * _most_posed(config)
    about_questions = verified if config.validation.verifier == "judge" else 0
    about_answers = verified + _answers(config, work, steps) if config.rollout.answer_check == "judge" else 0
    calls = about_failures + about_questions + about_answers
    if judge.base_url == "builtin" or not calls:
        return None
    tokens = calls * judge.max_tokens
    price = f" (a cost of {tokens * judge.price_completion / 1e6:,.2f})" if judge.price_completion else ""
    limits = [f"judge.token_budget {judge.token_budget:,}"] if judge.token_budget is not None else []
    limits += [f"judge.cost_budget {judge.cost_budget:,.2f}"] if judge.cost_budget is not None else []
    within = f", within {' and '.join(limits)}" if limits else ""
    return f"{judge.model} at {judge.base_url}: at most {calls} calls and {tokens:,} tokens of replies{price}, and the prompts{within}"


def _answers(config: RunConfig, work: Work, steps: int) -> int:
    """At most so many are checked beside those that verify: of all solver rollouts, and of the evaluations that are due."""
    plan, measure = config.selfplay, config.evaluation
    measured = work.stages.get(GREEDY, 0) * measure.questions * len(measure.arms) * (1 + measure.samples)
    return steps * _most_problems(config) * plan.solver_group + measured


def _most_posed(config: RunConfig) -> int:
    """Questions of one step."""
    return config.selfplay.targets * config.selfplay.proposals_per_target


def _most_problems(config: RunConfig) -> int:
    """Of one step: every question that it poses, if all are valid."""
    return max(config.selfplay.problems, _most_posed(config))


def evaluation_work(config: RunConfig) -> Work:
    """What `sesa eval` has before it."""
    return Work(0, 0, {GREEDY: 1, SAMPLED: int(config.evaluation.samples > 0)}, guesses(config))


def guesses(config: RunConfig) -> dict[str, float]:
    """Seconds for one step and for one stage of each kind, before any was seen."""
    plan, measure = config.selfplay, config.evaluation
    rollouts = _most_posed(config) + _most_problems(config) * plan.solver_group
    questions = measure.questions * len(measure.arms)
    return {
        STEP: rollouts * TRAINED_ROLLOUT_S,
        GREEDY: questions * ROLLOUT_S,
        SAMPLED: questions * measure.samples * ROLLOUT_S,
        "distil": config.queue.per_boundary * JUDGE_CALL_S,
        "boundary": BOUNDARY_S,
    }


def finish(run: LiveRun) -> dict[str, Any]:
    """Write report.json, which makes the run complete, and return it."""
    rows = [r for r in run.store.boundaries() if r.kind == "segment"]
    attempts = [run.folder.segment_dir(r.segment) / f"attempt-{r.attempt}" for r in rows]
    measured = {k: run.folder.evaluation_file(k) for k in range(run.config.selfplay.segments + 1)}
    evaluations = {k: json.loads(f.read_text()) for k, f in measured.items() if f.exists()}
    report = summarise(run.folder.name, [r.report for r in rows], read_steps(attempts), evaluations)
    partial = run.folder.report_file.with_suffix(".partial")
    partial.write_text(json.dumps(report, indent=1))
    os.replace(partial, run.folder.report_file)
    return report
