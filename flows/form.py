"""The form of a run: the few settings that people change, as the Prefect UI and `sesa run` show them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from flows.composition import check
from flows.worlds import pinned
from sesa_core.config.load import from_the_root, load_config
from sesa_core.config.models import RunConfig
from sesa_core.errors import MissingRun
from sesa_core.training.run_folder import RunFolder, create_run, find_run


class TrainForm(BaseModel):
    """Everything else is set by `overrides`, one `key=value` each. A run that exists goes on with the settings it has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: str | None = Field(None, description="Settings to start from: quickstart, laptop-llm, paper")
    name: str | None = Field(None, description="Name of the run; empty: a new one")
    segments: int | None = Field(None, ge=1, description="Segments to train")
    seed: int | None = Field(None, ge=0, description="Seed of every random stream")
    judge_url: str | None = Field(None, description="Judge endpoint (OpenAI-compatible); empty: the preset's")
    runs_dir: str | None = Field(None, description="Folder that holds the runs")
    config_file: str | None = Field(None, description="YAML file of settings, laid over the preset")
    overrides: list[str] = Field([], description="Further settings, key=value each")

    def config(self) -> RunConfig:
        """The settings of a new run. Raises `ConfigError`."""
        values = {
            "selfplay": {"segments": self.segments},
            "seed": self.seed,
            "judge": {"base_url": self.judge_url},
            "runs_dir": self.runs_dir,
        }
        return load_config(self.preset, self.config_file, self.overrides, _given(values))

    def create(self) -> RunFolder:
        """A new run, whose settings have been tried out and say what its world holds. Raises `UserError`, or `ServiceError` for a
        judge that does not answer."""
        config = from_the_root(self.config())
        check(config)
        return create_run(pinned(config), self.name)

    def claim(self, fallback: str) -> RunFolder:
        """The folder of the named run if there is one, else a new one. `fallback` is the name of a run that was given none."""
        named = self if self.name else self.model_copy(update={"name": fallback})
        try:
            return find_run(Path(named.config().runs_dir), named.name)
        except MissingRun:
            return named.create()


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without the fields that were left empty."""
    nested = {k: _given(v) if isinstance(v, Mapping) else v for k, v in values.items()}
    return {k: v for k, v in nested.items() if v is not None and v != {}}
