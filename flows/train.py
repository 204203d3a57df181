"""The main job: `train` chains segments; each trains ten steps, distils its failures and commits one boundary.

Bodies only put calls in order. Invariant: the loop starts after the last committed segment, so a flow that is started again,
by a person, a Retry button or an automation, goes on where the bank says it stands. Edge case: a batch of judge calls that
fails is shown as Failed and does not fail its segment.
"""

from typing import Any

from sesa_core.config.environment import quiet_libraries

quiet_libraries()  # a worker imports this module first

from prefect import flow, get_run_logger  # noqa: E402
from prefect.runtime import flow_run  # noqa: E402
from prefect.states import Cancelled, Completed, State  # noqa: E402

from flows.composition import opened  # noqa: E402
from flows.distillation import distilled, distilled_meanwhile  # noqa: E402
from flows.form import TrainForm  # noqa: E402
from flows.reporting import expected_work, finish, flow_display  # noqa: E402
from tasks.artifacts import publish_segment  # noqa: E402
from tasks.bank import commit_boundary  # noqa: E402
from tasks.evaluation import evaluate_segment, evaluation_due  # noqa: E402
from tasks.live_run import LiveRun, live  # noqa: E402
from tasks.training import recover, retain_checkpoints, train_segment  # noqa: E402

STOPPED = Cancelled(message="stopped by a person; the run can be resumed by its name")


def _run_name() -> str:
    """Also the run's, where its form names none: a Retry has the same flow run, and so finds the run that it began."""
    form = flow_run.parameters.get("form")
    return (form.name if isinstance(form, TrainForm) else (form or {}).get("name")) or f"train-{flow_run.id[:8]}"


@flow(name="train", flow_run_name=_run_name)
def train(form: TrainForm = TrainForm()) -> Any:  # noqa: B008
    """Train until the last segment is committed and evaluated. Returns the run's report; ends Cancelled if it was stopped."""
    folder = form.claim(_run_name())
    if folder.complete:
        return folder.report()
    with opened(folder, flow_display(get_run_logger())) as run:
        run_dir = str(folder.path.resolve())
        done = recover(run_dir)
        run.display.expect(expected_work(run.config, folder, done))
        state = conclude(run, done)
        for number in range(done + 1, run.config.selfplay.segments + 1):
            if run.stop_requested() or state.is_cancelled():
                return STOPPED
            state = segment(run_dir, number, return_state=True)
            if not state.is_cancelled():
                state.result()
        return STOPPED if state.is_cancelled() else finish(run)


@flow(name="segment", flow_run_name="segment {number}")
def segment(run_dir: str, number: int) -> Any:
    """Train, distil, commit one boundary, and what follows from it."""
    run = live(run_dir)
    with distilled_meanwhile(run, number) as judged_meanwhile:
        trained = train_segment(run_dir, number, return_state=True)
        if trained.is_cancelled():
            return trained
        trained.result()
        judged = judged_meanwhile()
    judged += distilled(run, number, judged)
    report = commit_boundary(run_dir, number, judged)
    concluded = conclude(run, number)
    return concluded if concluded.is_cancelled() else Completed(message=f"boundary {report['tag']}, {len(report['added'])} cards added")


def conclude(run: LiveRun, number: int) -> State:
    """What follows a boundary. Each part is done once, so a run that was killed here makes up for it when it is resumed."""
    run_dir = str(run.folder.path.resolve())
    if number:
        publish_segment(run_dir, number)
        retain_checkpoints(run_dir, number)
    if not evaluation_due(run.config, number):
        return Completed()
    state = evaluate_segment(run_dir, number, return_state=True)
    if not state.is_cancelled():
        state.result()
    return state
