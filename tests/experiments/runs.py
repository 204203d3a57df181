"""Runs of an experiment, each in a process of its own; what is complete is not run again."""

import argparse
import json
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
        command += ["--preset", preset, *options(settings)]
    sesa(command, runs_dir / f"{name}.screen.txt")
    return folder


def sesa(command: Sequence[str], screen: Path) -> None:
    """Raises CalledProcessError if it fails; what it prints is appended to `screen`."""
    with screen.open("ab") as out:
        subprocess.run([sys.executable, "-m", "flows.cli", *command], stdout=out, stderr=out, check=True)


def options(settings: Sequence[str]) -> list[str]:
    """`key=value` as the command line takes them."""
    return [part for setting in settings for part in ("--set", setting)]


def steps_of(folder: RunFolder) -> dict[int, dict]:
    """The metrics of each step, by step; a later attempt at one replaces an aborted one."""
    return {row["step"]: row for row in map(json.loads, folder.metrics_file.read_text().splitlines())}


def command_line(description: str | None, runs_dir: str) -> argparse.ArgumentParser:
    """With the options that all experiments have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs-dir", type=Path, default=Path(runs_dir))
    parser.add_argument("--out", type=Path, help="write the document into this file as well")
    return parser


def made_folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def publish(text: str, out: Path | None) -> None:
    print(text)
    if out:
        out.write_text(text)
