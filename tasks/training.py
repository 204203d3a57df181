"""Tasks of a segment's training. Not cached by Prefect: what counts as done is what is on disk and verifies."""

from typing import Any

from prefect import task
from prefect.states import Cancelled

from sesa_core.bank.places import kept_segments
from sesa_core.training.run_folder import prune_checkpoints
from sesa_core.training.segment import StopRequested
from tasks.live_run import live


@task
def recover(run_dir: str) -> int:
    """Bring the bank to its last boundary. Returns the newest committed segment."""
    return live(run_dir).recover()


@task(task_run_name="train segment {segment}")
def train_segment(run_dir: str, segment: int) -> Any:
    """Ten steps, or the finished attempt that a crash kept from its boundary. Returns the attempt's number.

    Ends Cancelled if a person asked the run to stop.
    """
    run = live(run_dir)
    result = run.finished(segment)
    if result is None:
        try:
            result = run.train(segment)
        except StopRequested as stop:
            return Cancelled(message=str(stop))
    return result.attempt


@task(task_run_name="retention after segment {segment}")
def retain_checkpoints(run_dir: str, segment: int) -> int:
    """Delete checkpoints that no longer count; what a person tagged stays. Returns how many folders went."""
    run = live(run_dir)
    kept = kept_segments(run.store.boundaries(), run.store.tags.boundaries(), run.config.retention.checkpoints)
    return len(prune_checkpoints(run.folder, kept))
