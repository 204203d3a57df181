"""Runs of an experiment, each in a process of its own; what is complete is not run again."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def complete_run(name: str, runs_dir: Path, settings: Sequence[str]) -> Path:
    """One `sesa run` with `settings` (`key=value`), resumed where it was broken off. Returns its folder."""
    folder = runs_dir / name
    if (folder / "report.json").exists():
        return folder
    command = ["run", "--name", name, "--runs-dir", str(runs_dir)]
    if (folder / "config.yaml").exists():
        command.append("--resume")
    else:
        command += [part for setting in settings for part in ("--set", setting)]
    sesa(command, runs_dir / f"{name}.screen.txt")
    return folder


def sesa(command: Sequence[str], screen: Path) -> None:
    """Raises CalledProcessError if it fails; what it prints is appended to `screen`."""
    with screen.open("ab") as out:
        subprocess.run([sys.executable, "-m", "flows.cli", *command], stdout=out, stderr=out, check=True)
