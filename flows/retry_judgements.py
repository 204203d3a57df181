"""`retry_failed_judgements` for the Prefect UI and its schedules: `sesa judge retry` as a flow."""

from typing import Any

from sesa_core.config.environment import quiet_libraries

quiet_libraries()  # a worker imports this module first

from pathlib import Path  # noqa: E402

from prefect import flow, get_run_logger  # noqa: E402
from prefect.states import Completed, Failed  # noqa: E402

from flows.judgements import retry_failed  # noqa: E402
from sesa_core.training.run_folder import find_run  # noqa: E402


@flow(name="retry_failed_judgements", flow_run_name="retry judgements of {run}")
def retry_failed_judgements(run: str | None = None, runs_dir: str = "runs", dead: bool = False) -> Any:
    """Ask the judge again about exactly the failures whose calls brought nothing. Ends Failed if some brought nothing again."""
    done = retry_failed(find_run(Path(runs_dir), run), dead=dead, by="retry_failed_judgements")
    for failure, trouble in done.trouble.items():
        get_run_logger().warning(f"{failure}: {trouble}")
    if done.left_to_run:
        came = "the run is being trained and takes them in at its next boundary"
    else:
        came = f"boundary {done.report.tag}, {len(done.report.added)} cards added" if done.report is not None else "nothing to commit"
    message = f"{done.asked} calls, {len(done.trouble)} without a usable reply; {came}"
    return Failed(message=message) if done.trouble else Completed(message=message)
