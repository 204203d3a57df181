"""What a segment leaves in the Prefect UI: four tables under fixed keys, so that each key is a history."""

import re
from collections.abc import Mapping
from typing import Any

from prefect import task
from prefect.artifacts import create_table_artifact

from sesa_core.report.tables import bank_diff_rows, gate_rows, metric_rows
from tasks.live_run import live


def artifact_key(kind: str, run_name: str) -> str:
    """Prefect takes `[a-z0-9-]` only."""
    return f"{kind}-{re.sub('[^a-z0-9]+', '-', run_name.lower()).strip('-')}"


@task(task_run_name="artifacts of segment {segment}")
def publish_segment(run_dir: str, segment: int, report: Mapping[str, Any]) -> None:
    """Metrics, judge calls, gate findings and the bank's diff of one segment."""
    run = live(run_dir)
    tables = {
        "metrics": metric_rows(run.segment_row(segment).metrics),
        "judge": run.batch.rows,
        "gate": gate_rows(report),
        "bank": bank_diff_rows(report),
    }
    for kind, rows in tables.items():
        create_table_artifact(rows, key=artifact_key(kind, run.folder.name), description=f"{kind} of segment {segment}")
