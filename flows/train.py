"""The main job: `train` chains segments; each trains ten steps, distils its failures and commits one boundary.

Bodies only put calls in order. Invariant: the loop starts after the last committed segment, so a flow that is started again,
by a person, a Retry button or an automation, goes on where the bank says it stands. Edge case: a batch of judge calls that
fails is shown as Failed and does not fail its segment.
"""

import asyncio
from typing import Any

from sesa_core.config.environment import quiet_libraries

quiet_libraries()  # a worker imports this module first

from prefect import flow, get_run_logger  # noqa: E402
from prefect.runtime import flow_run  # noqa: E402
from prefect.states import Cancelled, Completed, Failed, State  # noqa: E402

from flows.composition import opened  # noqa: E402
from flows.form import TrainForm  # noqa: E402
from flows.reporting import finish, flow_display  # noqa: E402
from sesa_core.errors import ServiceError  # noqa: E402
from tasks.artifacts import publish_segment  # noqa: E402
from tasks.bank import commit_boundary  # noqa: E402
from tasks.distillation import with_patience  # noqa: E402
from tasks.evaluation import evaluate_segment  # noqa: E402
from tasks.live_run import LiveRun, live  # noqa: E402
from tasks.training import recover, retain_checkpoints, train_segment  # noqa: E402

STOPPED = Cancelled(message="stopped by a person; the run can be resumed by its name")


def _run_name() -> str:
    form = flow_run.parameters.get("form")
    return (form.name if isinstance(form, TrainForm) else (form or {}).get("name")) or "train"


@flow(name="train", flow_run_name=_run_name)
def train(form: TrainForm = TrainForm()) -> Any:  # noqa: B008
    """Train until the last segment is committed and evaluated. Returns the run's report; ends Cancelled if it was stopped."""
    folder = form.claim()
    if folder.complete:
        return folder.report()
    with opened(folder, flow_display(get_run_logger())) as run:
        run_dir = str(folder.path.resolve())
        done = recover(run_dir)
        if done == 0 and not run.stop_requested():
            evaluate_segment(run_dir, 0)
        for number in range(done + 1, run.config.selfplay.segments + 1):
            state = STOPPED if run.stop_requested() else segment(run_dir, number, return_state=True)
            if state.is_cancelled():
                return STOPPED
            state.result()
        if run.stop_requested():
            return STOPPED
        evaluate_segment(run_dir, run.config.selfplay.segments)
        return finish(run)


@flow(name="segment", flow_run_name="segment {number}")
def segment(run_dir: str, number: int) -> Any:
    """Train, distil, commit one boundary."""
    run = live(run_dir)
    trained = train_segment(run_dir, number, return_state=True)
    if trained.is_cancelled():
        return trained
    trained.result()
    judged = distil(run, number)
    report = commit_boundary(run_dir, number, judged)
    publish_segment(run_dir, number, report)
    retain_checkpoints(run_dir, number)
    if run.evaluation_due(number):
        evaluate_segment(run_dir, number)
    return Completed(message=f"boundary {report['tag']}, {len(report['added'])} cards added")


def distil(run: LiveRun, number: int) -> list[str]:
    """Judge a segment's selection; ids of its failures. A batch in which calls fail is shown, and nothing else."""
    failures = run.select(run.finished(number))
    ids = [f.failure_id for f in failures]
    run.open_batch(failures)
    if ids:
        run.display.stage("distil", f"segment {number}: judging {len(ids)} failures")
        state = asyncio.run(distill_batch(str(run.folder.path.resolve()), number, ids, return_state=True))
        if not run.batch.rows:  # it broke before the calls were done
            state.result()
    return ids


@flow(name="distill_batch", flow_run_name="distil segment {number}")
async def distill_batch(run_dir: str, number: int, failure_ids: list[str]) -> State:
    """One retried, persisted task per failure. Ends Failed, and visible, if any call brought no card."""
    run = live(run_dir)
    ask = with_patience(run.config.judge)
    calls = (ask(run_dir, f, run.judge.prompt_hash, run.judge.model) for f in failure_ids)
    outcomes = dict(zip(failure_ids, await asyncio.gather(*calls, return_exceptions=True), strict=True))
    for outcome in outcomes.values():
        if isinstance(outcome, BaseException) and not isinstance(outcome, ServiceError):
            raise outcome
    failed = run.note_outcomes(outcomes)
    if failed:
        return Failed(message=f"{failed} of {len(failure_ids)} judge calls brought no card; their failures stay pending")
    return Completed(message=f"{len(failure_ids)} judge calls, each with a card")
