"""`sesa eval`: measure the policy and the bank that a run made."""

from typing import Annotated

import typer
from rich.console import Console, Group
from rich.text import Text

from flows.commands.options import RUNS_DIR, AsJson, Overrides, RunName, RunsDir


def evaluate(
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    at: Annotated[
        int | None, typer.Option("--at", help="Segment after which to measure; 0 is the start.", show_default="the newest", min=0)
    ] = None,
    overrides: Overrides = None,
    again: Annotated[bool, typer.Option("--again", help="Measure even if the run did so itself.")] = False,
    as_json: AsJson = False,
) -> None:
    """Accuracy of a run's solver on held-out questions: bank off, on and placebo, greedy and at temperature 1.

    What the run measured itself is printed as it is stored; with --again or --set it is played anew, and nothing is stored
    but what libraries print, in the run's log. A segment can be measured anew as long as its checkpoints are kept.

    Example: sesa eval --run quickstart-001 --set evaluation.split=dev --set evaluation.questions=100
    """
    from flows.commands.printing import print_json
    from flows.composition import measure_boundary, require_policies, stored_evaluation
    from flows.reporting import evaluation_work
    from sesa_core.config.load import load_config
    from sesa_core.report.pace import Pace
    from sesa_core.report.summary import evaluation_table, undecided_notes
    from sesa_core.report.terminal import captured_output, open_display
    from sesa_core.training.run_folder import find_run

    folder = find_run(runs_dir, run)
    config = load_config(file=folder.config_file, overrides=overrides or (), values={"runs_dir": str(runs_dir)})
    report = None if overrides or again else stored_evaluation(folder, config, at)
    if report is None:
        require_policies(folder, config, at)
        with (  # verl prints to standard output when an engine is built
            captured_output(folder.log_file, onto="stderr" if as_json else "stdout") as screen,
            open_display(folder.name, screen, Pace(evaluation_work(config))) as display,
        ):
            display.stage("start", "loading the world, the policies and the bank")
            report = measure_boundary(folder, config, at, display)
    else:
        typer.echo("measured by the run itself; --again plays it anew", err=True)
    if as_json:
        print_json(report)
        return
    titled = {f"{folder.name}{'' if at is None else f' after segment {at}'}": report}
    Console(highlight=False).print(Group(evaluation_table(titled), *map(Text, undecided_notes(titled))), soft_wrap=True)
