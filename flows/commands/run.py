"""`sesa run` and `sesa stop`: the main job, seen from a terminal."""

import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from flows.commands.options import RUNS_DIR, STOPPED, AsJson, ConfigFile, Overrides, Preset, RunsDir

if TYPE_CHECKING:
    from sesa_core.report.terminal import Display
    from sesa_core.training.run_folder import RunFolder


def run(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the run.", show_default="the preset's, numbered")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped: the named one, or the newest.")] = False,
    runs_dir: Annotated[Path | None, typer.Option("--runs-dir", help="Folder that holds the runs.", show_default="runs")] = None,
    as_json: AsJson = False,
) -> None:
    """Train: self-play, distillation and evaluation, until the last segment is done. Ctrl-C stops after the current step.

    Example: sesa run --name first --set selfplay.segments=5 --set seed=3

    Over a corpus of your own: sesa run --set world.kind=files --set world.path=FOLDER --set validation.verifier=solver (what the
    folder holds stands in the README).
    """
    from flows.form import TrainForm
    from sesa_core.errors import ConfigError
    from sesa_core.training.run_folder import busy, find_unfinished, is_live

    if resume:
        changed = {"--preset": preset, "--config": config, "--set": overrides}
        for option, value in changed.items():
            if value:
                raise ConfigError(option, value, "a resumed run goes on with the settings in its own config.yaml")
        folder = find_unfinished(runs_dir or RUNS_DIR, name)
        if is_live(folder):
            raise busy(folder)
    else:
        form = TrainForm(
            preset=preset,
            name=name,
            config_file=str(config) if config else None,
            overrides=overrides or [],
            runs_dir=str(runs_dir) if runs_dir else None,
        )
        folder = form.create()
    drive(folder, as_json)


def drive(folder: "RunFolder", as_json: bool = False) -> None:
    """Run the flow with the terminal ours, and print the last screen. Leaves with 130 when a person stopped it.

    `as_json`: standard output gets the report and nothing else; progress goes to standard error.
    """
    from flows.commands.printing import print_json
    from sesa_core.errors import SesaError
    from sesa_core.report.summary import print_summary
    from sesa_core.report.terminal import captured_output

    typer.echo(f"{folder.path}: what libraries print goes to {folder.log_file}", err=as_json)
    try:
        with captured_output(folder.log_file, onto="stderr" if as_json else "stdout") as screen:
            report = _train(folder, screen)
    except KeyboardInterrupt:
        report = None
    except SesaError:
        typer.echo(f"what was done is kept; go on with: {folder.resume_command}", err=True)
        raise
    if report is None:
        typer.echo(f"stopped; nothing half-done was kept. Go on with: {folder.resume_command}", err=as_json)
        raise typer.Exit(STOPPED)
    if as_json:
        print_json(report)
    else:
        print_summary(report, places(folder), next_commands(folder))


def places(folder: "RunFolder") -> dict[str, object]:
    """Where everything of a run lies."""
    return {
        "report": folder.report_file,
        "bank": folder.config().bank.uri or folder.path / "bank",
        "policies": folder.path / "segments",
        "log": folder.log_file,
    }


def next_commands(folder: "RunFolder") -> list[str]:
    """What a person may want to do with a complete run: see its cards, measure it again, repeat it with another seed."""
    again = f"sesa run --config {shlex.quote(str(folder.config_file))} --set seed={folder.config().seed + 1}{folder.where}"
    return [f"sesa bank list --run {folder.name}{folder.where}", f"sesa eval --run {folder.name}{folder.where}", again]


def _train(folder: "RunFolder", screen: TextIO) -> dict | None:
    """The run's report, or None if it was stopped. Prefect's server starts while models and world are loaded."""
    from flows.embedded_prefect import prefect_api

    with prefect_api(folder.prefect_home) as prefect:
        from flows.composition import opened
        from flows.form import TrainForm
        from flows.reporting import expected_work, most_that_judging_uses
        from flows.train import train
        from sesa_core.report.pace import Pace
        from sesa_core.report.terminal import open_display, where_text

        work, plan = expected_work(folder.config(), folder), folder.config().selfplay
        where = where_text(work.steps_done // plan.steps_per_segment, plan.segments, work.steps_done, work.steps)
        pace = Pace(work)
        if (foreseen := most_that_judging_uses(folder.config(), work)) is not None:
            print(foreseen, file=screen)
        with open_display(folder.name, screen, pace) as display, interrupts(folder, display):
            display.stage("start", f"{where} · loading the world, the policies and the bank")
            with opened(folder, display):
                display.phase("waiting for Prefect")
                prefect.wait()
                form = TrainForm(name=folder.name, runs_dir=str(folder.path.parent))
                state = train(form, return_state=True)
        return None if state.is_cancelled() else state.result()


@contextmanager
def interrupts(folder: "RunFolder", display: "Display") -> Iterator[None]:
    """The first Ctrl-C asks the run to stop, as `sesa stop` does; the second one breaks it off."""

    def ask_to_stop(number: int, frame: object) -> None:
        folder.stop_file.touch()
        display.note("stopping after the current step; Ctrl-C again breaks off at once")
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before: Callable | int | None = signal.signal(signal.SIGINT, ask_to_stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def stop(
    name: Annotated[str | None, typer.Argument(help="Name of the run.", show_default="the newest that is running")] = None,
    runs_dir: RunsDir = RUNS_DIR,
    as_json: AsJson = False,
) -> None:
    """Ask a running run to stop after its current step. Nothing half-done is kept; the run can be resumed.

    Example: sesa stop quickstart-001
    """
    from flows.commands.printing import print_json
    from sesa_core.errors import MissingRun
    from sesa_core.training.run_folder import find_run, is_live, runs

    folder = find_run(runs_dir, name) if name else next((r for r in reversed(runs(runs_dir)) if is_live(r)), None)
    if folder is None:
        raise MissingRun(f"no run in {runs_dir} is running")
    if not is_live(folder):
        then = "it is complete" if folder.complete else f"go on with: {folder.resume_command}"
        raise MissingRun(f"{folder.name} is not running; {then}")
    folder.stop_file.touch()
    if as_json:
        print_json({"run": folder.name, "folder": str(folder.path), "resume": folder.resume_command})
    else:
        typer.echo(f"{folder.name} will stop after its current step. Go on with: {folder.resume_command}")
