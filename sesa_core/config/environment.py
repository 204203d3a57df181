"""The one place that reads or sets environment variables.

`quiet_libraries()` must run before torch, ray, verl, prefect, lancedb or great_expectations are imported: it switches off
their telemetry and fixes what they read at import. Values that a person has set are kept.
"""

import os
from pathlib import Path

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "GX_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_DISABLED": "true",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_WAIT_POLICY": "passive",  # two spinning thread pools on a busy machine are 3 to 7 times slower
    "LANCEDB_LOG": "error",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONWARNINGS": "ignore",
}


def quiet_libraries() -> None:
    """Switch off telemetry and chatter of the libraries, for this process and its children."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def judge_api_key() -> str | None:
    """The judge's key (JUDGE_API_KEY); never logged, never saved."""
    return os.environ.get("JUDGE_API_KEY")


def prefect_api_url() -> str | None:
    """The address of a started Prefect server, None for the embedded one."""
    return os.environ.get("PREFECT_API_URL")


def keep_prefect_beside(runs_dir: Path) -> None:
    """Without a server and without a person's own choice, Prefect's database and results live beside the runs."""
    if not prefect_api_url():
        os.environ.setdefault("PREFECT_HOME", str((runs_dir / ".prefect").resolve()))
