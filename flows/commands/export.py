"""`sesa export`: what a run has trained, for use elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import RUNS_DIR, AsJson, RunName, RunsDir

app = typer.Typer(help="What a run has trained, for use elsewhere.", no_args_is_help=True)


@app.command("hf")
def hf(
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the policies go; must not exist or be empty.")],
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    at: Annotated[
        int | None, typer.Option("--at", help="Segment after which to take them; 0 is the start.", show_default="the newest", min=0)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write each policy as a folder that Hugging Face's AutoModelForCausalLM and AutoTokenizer load.

    Example: sesa export hf my-policies --run first, then: sesa run --set policy.path=my-policies/solver
    """
    from flows.commands.printing import print_json
    from flows.composition import export_policies, require_policies
    from sesa_core.errors import UserError
    from sesa_core.report.pace import Pace, Work
    from sesa_core.report.terminal import captured_output, open_display
    from sesa_core.training.run_folder import find_run

    folder = find_run(runs_dir, run)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already and not an empty folder; nothing is overwritten")
    require_policies(folder, folder.config(), at)
    with (  # verl prints to standard output when an engine is built
        captured_output(folder.log_file, onto="stderr") as screen,
        open_display(folder.name, screen, Pace(Work(0, 0))) as display,
    ):
        segment, written = export_policies(folder, folder.config(), at, out, display)
    if as_json:
        print_json({"run": folder.name, "segment": segment, "policies": {role: str(path) for role, path in written.items()}})
        return
    for role, path in written.items():
        typer.echo(f"{role} after segment {segment}: {path}")
