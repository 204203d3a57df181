"""What every section of the settings is: frozen, and refusing keys and numbers that mean nothing."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Unknown keys are refused, and so are infinities and NaN, of which no bound would take notice."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)
