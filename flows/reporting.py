"""What a flow says while it runs where no terminal is, and what it leaves at the end."""

import json
import logging
import os
from collections import Counter
from typing import Any

from sesa_core.report.pace import Pace
from sesa_core.report.summary import read_steps, summarise
from sesa_core.report.terminal import Display, PlainDisplay
from tasks.live_run import LiveRun


def flow_display(logger: logging.Logger | logging.LoggerAdapter) -> Display:
    """One line per step in the flow run's own log."""
    return PlainDisplay(logger.info, Pace(0, 0, {}))


def expected_work(run: LiveRun) -> tuple[int, int, Counter[str]]:
    """(steps of the whole run, steps already committed, stages to come by kind): what a display needs to name the time left."""
    plan, done = run.config.selfplay, max(0, run.last_segment())
    ahead = range(done + 1, plan.segments + 1)
    evaluations = sum(map(run.evaluation_due, ahead)) + sum(not run.folder.evaluation_file(k).exists() for k in (0, plan.segments))
    stages = Counter({"evaluate greedy": evaluations, "evaluate sampled": evaluations, "distil": len(ahead), "boundary": len(ahead)})
    return plan.segments * plan.steps_per_segment, done * plan.steps_per_segment, stages


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
