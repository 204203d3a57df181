"""The one place that reads or sets environment variables.

`quiet_libraries()` must run before torch, ray, verl, prefect, lancedb or great_expectations are imported: it switches off
their telemetry and fixes what they read at import. Values that a person has set are kept.
"""

import getpass
import os
import secrets
from pathlib import Path

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "GX_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
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


def person() -> str:
    """Who sits at this machine, as the system knows them: what a person's change is signed with."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return "someone"


def prefect_api_url() -> str | None:
    """The address of a started Prefect server, None for the embedded one."""
    return os.environ.get("PREFECT_API_URL")


def keep_prefect_in(home: Path) -> None:
    """Prefect's database and results live in `home`, for this process and the server that it starts.

    A person's own PREFECT_HOME belongs to a person's own server: two runs must never share one SQLite file.
    """
    os.environ["PREFECT_HOME"] = str(home.resolve())


def name_verl_platform() -> None:
    """Name SESA's CPU platform to verl, which reads this when it is first imported. A person's own choice of platform is kept."""
    module = "sesa_core.training.verl.platform"
    modules = [m for m in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if m]
    if module not in modules:
        os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join([*modules, module])
    os.environ.setdefault("VERL_PLATFORM", "cpu")
    os.environ.setdefault("VERL_LOGGING_LEVEL", "ERROR")


def be_only_rank() -> None:
    """Tell verl's workers that this process is the whole world. The address is only recorded: a group of one connects to nobody."""
    lone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    os.environ.update(lone)


def quiet_ray() -> None:
    """What a local Ray cluster reads at its start: no metrics, no workers ahead of need, one thread each, a token kept in memory."""
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_prestart_worker_first_driver": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
