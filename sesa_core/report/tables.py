"""Rows for the tables that a run shows, in a terminal or in the Prefect UI. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

SHOWN_METRICS = (
    "solver/reward",
    "solver/pass_rate",
    "solver/frontier_share",
    "solver/searches",
    "proposer/valid_rate",
    "proposer/reward",
    "bank/cards_per_question",
    "bank/failures",
    "tokens_per_second",
    "seconds/step",
)


def metric_rows(metrics: Mapping[str, float]) -> list[dict[str, Any]]:
    """The headline metrics first, then all others by name."""
    names = [n for n in SHOWN_METRICS if n in metrics] + sorted(set(metrics) - set(SHOWN_METRICS))
    return [{"metric": name, "mean": round(metrics[name], 4)} for name in names]


def health_rows(alarms: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per alarm; one that says so if there was none."""
    names = ("step", "name", "metric", "value", "bound", "means")
    return [{n: a[n] for n in names} for a in alarms] or [dict.fromkeys(names, "") | {"name": "no alarm"}]


def gate_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per finding; a suite without findings has one row that says so."""
    rows = []
    for gate in report["gates"]:
        ran = f"{gate['evaluated']} of {gate['expected']} checks ran"
        findings = gate["findings"] or [{"card_id": "", "rule": "passed" if gate["passed"] else "did not pass", "value": ran}]
        rows += [{"suite": gate["suite"], "card": f["card_id"], "rule": f["rule"], "value": f["value"]} for f in findings]
    return rows


def bank_diff_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a boundary changed: cards added, evicted, refused, each with its reason, and the version it made."""
    where = {"boundary": report["boundary_id"], "tag": report["tag"]}
    rows = [
        {"change": "added", "card": c["card_id"], "reason": f"failure {c['failure_id']}", "pattern": c["pattern"]} for c in report["added"]
    ]
    rows += [{"change": "evicted", "card": c["card_id"], "reason": c["reason"], "pattern": c["pattern"]} for c in report["evicted"]]
    rows += [
        {"change": "refused", "card": "", "reason": f"{r['rule']}: {r['reason']}", "pattern": f"failure {r['failure_id']}"}
        for r in report["refused"]
    ]
    return [row | where for row in rows]
