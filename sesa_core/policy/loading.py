"""Where a policy's weights and tokenizer come from: the tiny one that ships with SESA, or any Hugging Face causal LM.

A policy is named by `tiny`, by a folder, or by a hub name. Invariant: what comes back from `load_policy` is in evaluation
mode and needs no gradients. Edge case: a name that is neither a folder nor shaped like a hub name (`owner/name`) is a
person's mistake and is refused at once, before anything is downloaded.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sesa_core.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TINY = Path(__file__).parent / "files" / "tiny"
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def resolve_policy_path(name: str) -> Path:
    """The folder that holds the policy `name`; a hub name is fetched into Hugging Face's own cache.

    Raises ConfigError when there is no such policy.
    """
    if name == "tiny":
        return _existing(TINY, name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _existing(folder.resolve(), name)
    if HUB_NAME.fullmatch(name):
        return _from_hub(name)
    raise ConfigError("policy.path", name, "give `tiny`, a folder that holds a config.json, or a hub name like owner/name")


def load_policy(path: Path, dtype: str = "fp32") -> "PreTrainedModel":
    """The causal LM under `path` in `dtype` (`fp32` or `bf16`), without gradients."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=_torch_dtype(dtype), attn_implementation="sdpa")
    assert isinstance(model, torch.nn.Module)
    return model.eval().requires_grad_(False)


def load_tokenizer(path: Path) -> "PreTrainedTokenizerBase":
    """The tokenizer that lies beside the policy's weights."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path)


def positions_of(path: Path) -> int | None:
    """Tokens that the policy under `path` can see at once; None if its config does not say."""
    config = json.loads((path / "config.json").read_text())
    text = config.get("text_config", config)
    return text.get("max_position_embeddings", text.get("n_positions"))  # the latter in the older families, as GPT-2's


def require_adapted_layers(path: Path, targets: Sequence[str]) -> None:
    """Raises ConfigError for a name in `targets` that no linear layer of the policy under `path` has. Its weights are not read."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.pytorch_utils import Conv1D

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path))
    head = model.get_output_embeddings()
    linear = [name for name, part in model.named_modules() if isinstance(part, torch.nn.Linear | Conv1D) and part is not head]
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in linear):
            known = sorted({name.rpartition(".")[2] for name in linear})
            raise ConfigError("policy.lora.targets", target, f"no linear layer of this model has that name; there are {', '.join(known)}")


def _torch_dtype(name: str) -> "torch.dtype":
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16}[name]


def _existing(folder: Path, name: str) -> Path:
    if not (folder / "config.json").is_file():
        raise ConfigError("policy.path", name, f"{folder} holds no config.json of a Hugging Face model")
    return folder


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(name))
    except (HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError) as error:
        raise ConfigError(
            "policy.path", name, f"it is neither a folder here nor to be had from the hub ({type(error).__name__})"
        ) from error
