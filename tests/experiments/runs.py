"""Runs of an experiment, each in a process of its own; what is complete is not run again."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sesa_core.training.run_folder import RunFolder


def complete_run(name: str, runs_dir: Path, settings: Sequence[str], preset: str = "quickstart") -> RunFolder:
    """One `sesa run` with `settings` (`key=value`), resumed where it was broken off; one that is there keeps its own settings."""
    folder = RunFolder(runs_dir / name)
    if folder.complete:
        return folder
    command = ["run", "--name", name, "--runs-dir", str(runs_dir)]
    if folder.config_file.exists():
        command.append("--resume")
    else:
        command += ["--preset", preset, *(part for setting in settings for part in ("--set", setting))]
    sesa(command, runs_dir / f"{name}.screen.txt")
    return folder


def sesa(command: Sequence[str], screen: Path) -> None:
    """Raises CalledProcessError if it fails; what it prints is appended to `screen`."""
    with screen.open("ab") as out:
        subprocess.run([sys.executable, "-m", "flows.cli", *command], stdout=out, stderr=out, check=True)
