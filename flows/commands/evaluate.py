"""`sesa eval`: measure the policy and the bank that a run made."""

from typing import Annotated

import typer
from rich.console import Console

from flows.commands.options import RUNS_DIR, AsJson, Overrides, RunName, RunsDir


def evaluate(
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    at: Annotated[
        int | None, typer.Option("--at", help="Segment after which to measure; 0 is the start.", show_default="the newest", min=0)
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Play held-out questions with a run's solver: bank off, on and placebo, greedy and at temperature 1.

    Example: sesa eval --run quickstart-001 --set evaluation.split=dev --set evaluation.questions=100
    """
    from flows.commands.printing import print_json
    from flows.composition import measure_boundary
    from sesa_core.config.load import load_config
    from sesa_core.report.pace import Pace
    from sesa_core.report.summary import evaluation_table
    from sesa_core.report.terminal import PlainDisplay, captured_output
    from sesa_core.training.run_folder import find_run

    folder = find_run(runs_dir, run)
    config = load_config(file=folder.config_file, overrides=[*(overrides or ()), f"runs_dir={runs_dir}"])
    with captured_output(folder.log_file) as screen:  # verl prints to standard output when an engine is built
        display = PlainDisplay(lambda line: None if as_json else print(line, file=screen, flush=True), Pace(0, 0, {}))
        report = measure_boundary(folder, config, at, display)
    if as_json:
        print_json(report)
        return
    Console(highlight=False).print(evaluation_table({f"{folder.name}{'' if at is None else f' after segment {at}'}": report}))
