"""The form of a run: the few settings that people change, as the Prefect UI and `sesa run` show them."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from sesa_core.config.load import load_config
from sesa_core.config.models import RunConfig
from sesa_core.errors import MissingRun
from sesa_core.training.run_folder import RunFolder, create_run, find_run


class TrainForm(BaseModel):
    """Everything else is set by `overrides`, one `key=value` each. A run that exists goes on with the settings it has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: str | None = Field(None, description="Settings to start from: quickstart, paper")
    name: str | None = Field(None, description="Name of the run; empty: the preset's with the next number")
    segments: int | None = Field(None, ge=1, description="Segments to train")
    seed: int | None = Field(None, ge=0, description="Seed of every random stream")
    judge_url: str | None = Field(None, description="Judge endpoint (OpenAI-compatible); empty: the preset's")
    runs_dir: str | None = Field(None, description="Folder that holds the runs")
    config_file: str | None = Field(None, description="YAML file of settings, laid over the preset")
    overrides: list[str] = Field([], description="Further settings, key=value each")

    def config(self) -> RunConfig:
        """The settings of a new run. Raises `ConfigError`."""
        named = {
            "selfplay.segments": self.segments,
            "seed": self.seed,
            "judge.base_url": self.judge_url,
            "runs_dir": self.runs_dir,
        }
        few = [f"{key}={value}" for key, value in named.items() if value is not None]
        return load_config(self.preset, self.config_file, [*self.overrides, *few])

    def claim(self) -> RunFolder:
        """The folder of the named run if there is one, else a new one."""
        config = self.config()
        if self.name is not None:
            try:
                return find_run(Path(config.runs_dir), self.name)
            except MissingRun:
                pass
        return create_run(config, self.name)
