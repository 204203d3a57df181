"""The evaluation's task."""

from typing import Any

from prefect import task

from tasks.live_run import live


@task(task_run_name="evaluate after segment {segment}")
def evaluate_segment(run_dir: str, segment: int) -> dict[str, Any]:
    """Accuracy at the boundary of a segment, measured once and stored with the run."""
    return live(run_dir).evaluate(segment)
