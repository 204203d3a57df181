"""Options that several commands share, spelt once."""

from pathlib import Path
from typing import Annotated

import typer

STOPPED = 130  # exit code of a command that a person stopped

Preset = Annotated[
    str | None, typer.Option("--preset", help="Settings to start from: quickstart, laptop-llm, paper.", show_default="quickstart")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file of settings, laid over the preset.", metavar="FILE")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="One setting; may be repeated.", metavar="KEY=VALUE")]
RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Folder that holds the runs.")]
RunName = Annotated[str | None, typer.Option("--run", help="Name of a run.", show_default="the newest")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

RUNS_DIR = Path("runs")
