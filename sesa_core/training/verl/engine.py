"""verl's FSDP engine on a CPU: shared beginnings are computed once, and logits for trained tokens only.

verl's own path without flash-attention computes every row from its first token, the logits of prompts and tool results too, and
sums their exponentials token by token. Here rows that begin alike are one tree (`shared_prefix.py`) where the model's attention
takes a mask as it stands, else rows padded on the right; the hidden states of the positions that predict a trained token are
picked out before the output head, each once. Invariant: log-probs of trained tokens equal verl's; those of all other positions
are 0 and the loss mask hides them. Edge case: a padding row has no trained token at all.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from peft.tuners.lora import LoraLayer
from tensordict import TensorDict
from torch.distributed.tensor import DTensor
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name
from verl.utils.fsdp_utils import normalize_peft_param_name
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from sesa_core.policy.decoder import is_plain_decoder
from sesa_core.training.verl.shared_prefix import pack


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuEngine(FSDPEngineWithLMHead):
    """One policy (or the frozen reference) on the CPU.

    Owns its adapters, or all its weights where there are none. `frozen`, set before `initialize`, is what engines of one process
    have in common: the first to be built puts the weights that adapters leave alone there, each later one takes them as its own.
    """

    frozen: dict[str, torch.nn.Parameter] | None = None

    def _build_lora_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """verl's adapters, drawn from the run's seed: a restarted policy begins as it first began."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.engine_config.seed)
            return super()._build_lora_module(module)

    def _merged_lora_per_tensor_param(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Model and adapters as one, in the precision of the training's own weights (verl would round them to bf16)."""
        return merged_weights(self.module)

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        _switch_dropout_off(module)
        module.get_output_embeddings().register_forward_pre_hook(self._pick_hidden)
        self._pairs_per_token = _pairs_per_token(module)
        if not self.engine_config.forward_only:
            return _share(super()._build_fsdp_module(module), self.frozen)
        # A reference model would ask for offloading to pinned memory, which needs an accelerator: build it like a trainable one.
        object.__setattr__(self.engine_config, "forward_only", False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            object.__setattr__(self.engine_config, "forward_only", True)

    def _pick_hidden(self, head: torch.nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        (hidden,) = inputs  # (B, T, hidden) -> (N, hidden)
        return (hidden.flatten(0, 1)[self._picked],)

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the model reads, and which of its positions (N, each once) predict a trained token."""
        inputs, arguments = super().prepare_model_inputs(micro_batch)
        offsets, mask = micro_batch["input_ids"].offsets(), micro_batch["response_mask"]
        lengths, response_lengths = offsets.diff(), mask.offsets().diff()
        inputs["attention_mask"] = inputs["position_ids"] = None
        rows = np.split(micro_batch["input_ids"].values().numpy(), offsets[1:-1].numpy())
        packing = pack(rows, self._pairs_per_token) if self._pairs_per_token else None
        if packing is not None:
            inputs["input_ids"], inputs["position_ids"] = torch.from_numpy(packing.ids), torch.from_numpy(packing.positions)
            inputs["attention_mask"] = torch.from_numpy(packing.sees)[:, None]
            places = torch.from_numpy(np.concatenate(packing.places))
        else:
            width = inputs["input_ids"].shape[1]
            places = torch.cat([torch.arange(int(size)) + row * width for row, size in enumerate(lengths)])
        row = torch.repeat_interleave(torch.arange(len(lengths)), response_lengths)
        within = torch.arange(len(row)) - torch.repeat_interleave(mask.offsets()[:-1], response_lengths)
        columns = (lengths - response_lengths)[row] + within - 1
        self._trained = (offsets[row] + columns)[mask.values().bool()]  # in the rows as verl has them, one behind the other
        self._picked, self._which = places[self._trained].unique(return_inverse=True)
        return inputs, arguments

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Callable
    ) -> dict[str, torch.Tensor]:
        """`log_probs`, and `entropy` when asked for, as nested (B, length) tensors; `output.logits` is (N, V)."""
        offsets = micro_batch["input_ids"].offsets()
        labels = output_args["input_ids_rmpad_rolled"][self._trained]
        logits = output.logits.float()
        if not output_args["temperature_is_one"]:
            logits = logits / output_args["temperature"][0].clamp(min=1e-8)  # one for all rows: `rows.py` gives a number
        log_probs = torch.log_softmax(logits, -1)

        def spread(values: torch.Tensor) -> torch.Tensor:
            flat = torch.zeros(int(offsets[-1]), dtype=values.dtype).index_put((self._trained,), values)
            return torch.nested.nested_tensor_from_jagged(flat, offsets)

        outputs = {"log_probs": spread(log_probs[self._which, labels])}
        if tu.get_non_tensor_data(data=micro_batch, key="calculate_entropy", default=False):
            outputs["entropy"] = spread(-(log_probs.exp() * log_probs).sum(-1)[self._which])
        return outputs


def _share(module: torch.nn.Module, frozen: dict[str, torch.nn.Parameter] | None) -> torch.nn.Module:
    """`module` with the weights in `frozen` for its own; an empty `frozen` is given those of `module` that do not learn."""
    if frozen is None:
        return module
    if not frozen:
        frozen.update((name, p) for name, p in module.named_parameters(remove_duplicate=False) if not p.requires_grad)
        return module
    module.load_state_dict(frozen, strict=False, assign=True)
    return module.to(get_device_name())  # moves nothing, but here FSDP lets go of the weights it had before


def merged_weights(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Each weight of the adapted model `module` by its Hugging Face name, whole, with what its adapters add.

    Worked out one at a time, and nothing is written to `module` (verl would merge in place and put back from a copy of it all). A
    weight without an adapter may be the live one, not a copy: whoever keeps it must copy it.
    """
    state = module.state_dict()
    adapted = {f"{name}.base_layer.weight": part for name, part in module.named_modules() if isinstance(part, LoraLayer)}
    for name, key in normalize_peft_param_name({key: key for key in state}).items():
        tensor = _with_adapters(state[key], adapted[key]) if key in adapted else state[key]
        yield name, tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def _with_adapters(weight: torch.Tensor, layer: LoraLayer) -> torch.Tensor:
    for adapter in layer.active_adapters:
        weight = weight + layer.get_delta_weight(adapter)
    return weight


def _pairs_per_token(module: torch.nn.Module) -> float:
    """How many pairs of tokens attention compares for the work of one token in a layer's matrices: P weights are P multiplications,
    a pair is one along the keys and one along the values. 0 for a model whose attention does not take a mask as it stands."""
    config = module.config
    if not is_plain_decoder(config):
        return 0.0
    outside = {id(part.weight) for part in (module.get_input_embeddings(), module.get_output_embeddings())}
    weights = sum(p.numel() for p in module.parameters() if id(p) not in outside)
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return weights / (2 * config.num_hidden_layers * config.num_attention_heads * head_size)


def _switch_dropout_off(module: torch.nn.Module) -> None:
    """An update must see the policy that sampled, and nothing of that was dropped."""
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
        for name in ("attention_dropout", "dropout"):  # what attention hands to a function instead
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
