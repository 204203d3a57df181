"""Checkpoints on disk: complete or absent, and known by what is in them.

A checkpoint is a folder with `state.json` beside the files that an engine wrote. Invariant: a folder under its final name
is complete, for it is written beside and renamed at the end; its digest covers every file's name and bytes. Edge case: an
older folder of the same name is replaced, and is gone only once the new one is complete.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from sesa_core.errors import CheckpointMismatch, EngineError

STATE_FILE = "state.json"


@dataclass(frozen=True)
class CheckpointState:
    """What `state.json` says. `digest` names the checkpoint's content; two engines with equal digests are in equal states."""

    role: str
    policy_version: int
    digest: str


def publish(path: Path, role: str, policy_version: int, write: Callable[[Path], None]) -> CheckpointState:
    """Have `write` fill a folder, then give it its final name `path`."""
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    staged, former = (path.with_name(f".{path.name}.{what}") for what in ("part", "former"))
    for leftover in (staged, former):
        shutil.rmtree(leftover, ignore_errors=True)
    staged.mkdir()
    write(staged)
    state = CheckpointState(role, policy_version, content_digest(staged))
    (staged / STATE_FILE).write_text(json.dumps(asdict(state), indent=1))
    _flush(staged)
    if path.exists():
        path.rename(former)
    staged.rename(path)
    shutil.rmtree(former, ignore_errors=True)
    return state


def read_state(path: Path, role: str) -> CheckpointState:
    """What the checkpoint at `path` says of itself. Raises EngineError when there is none, or it is another role's."""
    try:
        state = CheckpointState(**json.loads((path / STATE_FILE).read_text()))
    except FileNotFoundError as error:
        raise EngineError(f"{path} holds no checkpoint") from error
    if state.role != role:
        raise EngineError(f"{path} is a checkpoint of the {state.role}, not of the {role}")
    return state


def verify(path: Path, state: CheckpointState) -> None:
    """Raises CheckpointMismatch when the files under `path` are not those that `state` names."""
    if content_digest(path) != state.digest:
        raise CheckpointMismatch(f"the files under {path} are not those that its {STATE_FILE} names")


def content_digest(folder: Path) -> str:
    """A digest of the names and bytes of all files under `folder`, `state.json` left out."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file != folder / STATE_FILE:
            digest.update(file.relative_to(folder).as_posix().encode() + b"\0")
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _flush(folder: Path) -> None:
    """Wait until every file is on the disk: a rename must not outrun the bytes it names."""
    for file in (folder, *folder.rglob("*")):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
