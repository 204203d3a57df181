"""The evaluation's task, and when it is due."""

from typing import Any

from prefect import task
from prefect.states import Cancelled

from sesa_core.config.models import RunConfig
from sesa_core.training.segment import StopRequested
from tasks.live_run import live


def evaluation_due(config: RunConfig, segment: int) -> bool:
    """Whether the settings ask for an evaluation after this segment: at both ends, and every so many in between."""
    every = config.evaluation.every_segments
    return segment in (0, config.selfplay.segments) or (every > 0 and segment % every == 0)


@task(task_run_name="evaluate after segment {segment}")
def evaluate_segment(run_dir: str, segment: int) -> Any:
    """Accuracy at the boundary of a segment, measured once and stored with the run. Ends Cancelled if the run was asked to stop."""
    try:
        return live(run_dir).evaluate(segment)
    except StopRequested as stop:
        return Cancelled(message=str(stop))
