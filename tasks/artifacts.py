"""What a segment leaves in the Prefect UI: five tables under fixed keys, so that each key is a history.

Invariant: published once. The task's result is persisted, so a run that was killed after its boundary publishes what is
missing when it is resumed, and nothing twice.
"""

import re
from typing import Any

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.context import TaskRunContext

from sesa_core.report.tables import bank_diff_rows, gate_rows, health_rows, metric_rows
from tasks.keys import cache_key
from tasks.live_run import live


def artifact_key(kind: str, run_name: str) -> str:
    """Prefect takes `[a-z0-9-]` only."""
    return f"{kind}-{re.sub('[^a-z0-9]+', '-', run_name.lower()).strip('-')}"


def _once(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    return cache_key("artifacts", live(parameters["run_dir"]).identity, str(parameters["segment"]))


@task(task_run_name="artifacts of segment {segment}", persist_result=True, cache_policy=CacheKeyFnPolicy(cache_key_fn=_once))
def publish_segment(run_dir: str, segment: int) -> list[str]:
    """Metrics, judge calls, alarms, gate findings and the bank's diff of a committed segment. Returns the tables' keys."""
    run = live(run_dir)
    row = run.segment_row(segment)
    tables = {
        "metrics": metric_rows(row.metrics),
        "judge": run.judge_rows(segment),
        "health": health_rows(run.alarms(segment)),
        "gate": gate_rows(row.report),
        "bank": bank_diff_rows({**row.report, "tag": row.tag}),
    }
    keys = {kind: artifact_key(kind, run.folder.name) for kind in tables}
    for kind, rows in tables.items():
        create_table_artifact(rows, key=keys[kind], description=f"{kind} of segment {segment}")
    return list(keys.values())
