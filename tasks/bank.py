"""The bank's task: a segment's boundary."""

from typing import Any

from prefect import task

from tasks.live_run import live


@task(task_run_name="commit boundary of segment {segment}")
def commit_boundary(run_dir: str, segment: int, judged: list[str]) -> dict[str, Any]:
    """Credit, evict, admit, gate, commit. Repeating it after a crash gives the stored report. Returns the report as JSON."""
    run = live(run_dir)
    return run.commit(run.finished(segment), judged).as_json()
