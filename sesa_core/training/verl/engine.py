"""verl's FSDP engine on a CPU, with logits for trained tokens only.

verl's own path without flash-attention computes the logits of prompts and tool results too, and sums their exponentials
token by token. Here rows are padded on the right, so causal attention needs no mask; the hidden states of the positions
that predict a trained token are picked out before the output head. Invariant: log-probs of trained tokens equal verl's;
those of all other positions are 0 and the loss mask hides them. Edge case: a padding row has no trained token at all.
"""

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuEngine(FSDPEngineWithLMHead):
    """One policy (or the frozen reference) on the CPU."""

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        module.get_output_embeddings().register_forward_pre_hook(self._pick_hidden)
        if not self.engine_config.forward_only:
            return super()._build_fsdp_module(module)
        # A reference model would ask for offloading to pinned memory, which needs an accelerator: build it like a trainable one.
        object.__setattr__(self.engine_config, "forward_only", False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            object.__setattr__(self.engine_config, "forward_only", True)

    def _pick_hidden(self, head: torch.nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        (hidden,) = inputs  # (B, T, hidden) -> (N, hidden)
        return (hidden[self._picked],)

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
        """verl's inputs without mask and positions; rows and columns of the N positions that predict a trained token."""
        inputs, arguments = super().prepare_model_inputs(micro_batch)
        mask = micro_batch["response_mask"]
        lengths, response_lengths = micro_batch["input_ids"].offsets().diff(), mask.offsets().diff()
        rows = torch.repeat_interleave(torch.arange(len(lengths)), response_lengths)
        within = torch.arange(len(rows)) - torch.repeat_interleave(mask.offsets()[:-1], response_lengths)
        trained = mask.values().bool()
        columns = ((lengths - response_lengths)[rows] + within - 1)[trained]
        self._picked = (rows[trained], columns)
        inputs["attention_mask"] = inputs["position_ids"] = None
        return inputs, arguments

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Callable
    ) -> dict[str, torch.Tensor]:
        """`log_probs`, and `entropy` when asked for, as nested (B, length) tensors; `output.logits` is (N, V)."""
        rows, columns = self._picked
        offsets = micro_batch["input_ids"].offsets()
        places = offsets[rows] + columns
        labels = output_args["input_ids_rmpad_rolled"][places]
        logits = output.logits.float()
        if not output_args["temperature_is_one"]:
            logits = logits / output_args["temperature"][rows][:, None].clamp(min=1e-8)
        log_probs = torch.log_softmax(logits, -1)

        def spread(values: torch.Tensor) -> torch.Tensor:
            flat = torch.zeros(int(offsets[-1]), dtype=values.dtype).index_put((places,), values)
            return torch.nested.nested_tensor_from_jagged(flat, offsets)

        outputs = {"log_probs": spread(log_probs.gather(1, labels[:, None])[:, 0])}
        if tu.get_non_tensor_data(data=micro_batch, key="calculate_entropy", default=False):
            outputs["entropy"] = spread(-(log_probs.exp() * log_probs).sum(-1))
        return outputs
