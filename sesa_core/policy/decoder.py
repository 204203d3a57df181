"""A dense Llama-style decoder over static key/value slots, written out so that rows of a batch may stand anywhere in their text.

Owns copies of the weights (query, key and value as one matrix, gate and up as another: fewer, larger products), made once and
written over by later ones, and the K/V cache of every slot. Invariant: a row's logits depend on its own slot alone. Edge case:
slots that only fill a gap between running ones write to a spare last column, which no query ever reads.

Shapes: B rows, T new tokens, H heads, G key/value heads, D head size, S slots, L longest sequence, V vocabulary.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from sesa_core.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass
class Layer:
    """One block's weights; biases are None where the family has none, head norms exist in Qwen3 only."""

    norm_in: torch.Tensor
    norm_mid: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    out: torch.Tensor
    out_bias: torch.Tensor | None
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None


class SlotDecoder:
    """The model of `model` with `slots` caches of `max_len` tokens each, on the model's device and in its dtype."""

    def __init__(self, model: "PreTrainedModel", slots: int, max_len: int) -> None:
        config = model.config
        if beyond := _beyond(config):
            raise EngineError(beyond)
        self.slots, self.max_len = slots, max_len
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.head_size = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps, self.layer_count, self.tied = config.rms_norm_eps, config.num_hidden_layers, config.tie_word_embeddings
        self.device, self.dtype = model.device, model.dtype
        shape = (slots, self.groups, max_len + 1, self.head_size)
        self.keys = [_lazy_zeros(shape, self.dtype, self.device) for _ in range(self.layer_count)]
        self.values = [_lazy_zeros(shape, self.dtype, self.device) for _ in range(self.layer_count)]
        self.columns = torch.arange(max_len + 1, device=self.device)
        probe = torch.zeros(1, 1, config.hidden_size, dtype=self.dtype, device=self.device)
        cos, sin = model.model.rotary_emb(probe, self.columns[None])
        self.cos, self.sin = cos[0], sin[0]  # (L + 1, D)
        self._held: dict[str, torch.Tensor] = {}  # by Hugging Face name: the part of our own matrices that is this weight
        self._build(model.state_dict())

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy `weights`, by their Hugging Face names, over those held. Raises EngineError as `overwrite` does."""
        overwrite(self._held, weights, self._held)

    def _build(self, state: Mapping[str, torch.Tensor]) -> None:
        """Make room for the weights in `state`, and fill it."""

        def take(*names: str) -> torch.Tensor | None:
            found = {n: state[n].detach().to(self.device, self.dtype) for n in names if n in state}
            if not found:
                return None
            joined = torch.cat(list(found.values()))  # cat copies, a lone tensor too
            self._held.update(zip(found, joined.split([len(part) for part in found.values()]), strict=True))
            return joined

        self.embed = take("model.embed_tokens.weight")
        self.head = self.embed if self.tied else take("lm_head.weight")
        self.norm = take("model.norm.weight")
        self.layers = [_layer(take, f"model.layers.{i}.") for i in range(self.layer_count)]

    def copy_prefixes(self, sources: torch.Tensor, targets: torch.Tensor, length: int) -> None:
        """Give each slot of `targets` (B,) the first `length` cached tokens of the slot beside it in `sources` (B,)."""
        for cache in (*self.keys, *self.values):
            cache[targets, :, :length] = cache[sources, :, :length]

    @torch.inference_mode()
    def forward(self, rows: torch.Tensor, ids: torch.Tensor, positions: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Run `ids` (B, T), right padded, at `positions` (B, T) of slots `rows` (B,); logits (B, V) at index `last` (B,) of each row."""
        count, span = len(rows), int(positions.max()) + 1
        top = int(rows[-1]) + 1
        if ids.shape[1] > 1 or count == top or count * 2 < top or bool((rows[1:] <= rows[:-1]).any()):
            dense = count == top and bool((rows == torch.arange(count, device=self.device)).all())
            return self._run(rows, ids, positions, last, span, dense)
        # Few holes between the running slots: run over the whole range, which spares gathering their K/V.
        all_ids = torch.zeros(top, 1, dtype=torch.long, device=self.device)
        all_positions = torch.full((top, 1), self.max_len, device=self.device)
        all_ids[rows], all_positions[rows] = ids, positions
        zeros = torch.zeros(top, dtype=torch.long, device=self.device)
        return self._run(torch.arange(top, device=self.device), all_ids, all_positions, zeros, span, True, keep=rows)

    def _run(
        self,
        rows: torch.Tensor,
        ids: torch.Tensor,
        positions: torch.Tensor,
        last: torch.Tensor,
        span: int,
        dense: bool,
        keep: torch.Tensor | None = None,
    ) -> torch.Tensor:
        shape = ids.shape
        turn = (self.cos[positions][:, None], self.sin[positions][:, None])  # (B, 1, T, D)
        mask = (self.columns[:span] <= positions[..., None])[:, None]  # (B, 1, T, span)
        mask = mask.repeat(1, 1, self.heads // self.groups, 1)
        hidden = self.embed[ids]
        for index, layer in enumerate(self.layers):
            normed = F.rms_norm(hidden, hidden.shape[-1:], layer.norm_in, self.eps)
            queries, keys, values = self._project(layer, normed, turn)
            cached_keys, cached_values = self._cache(index, rows, positions, keys, values, span, dense)
            mixed = F.scaled_dot_product_attention(queries, cached_keys, cached_values, attn_mask=mask)
            mixed = mixed.view(shape[0], self.heads, shape[1], self.head_size).transpose(1, 2).flatten(2)
            hidden = hidden + F.linear(mixed, layer.out, layer.out_bias)
            normed = F.rms_norm(hidden, hidden.shape[-1:], layer.norm_mid, self.eps)
            gate, up = F.linear(normed, layer.gate_up, layer.gate_up_bias).chunk(2, -1)
            hidden = hidden + F.linear(F.silu(gate) * up, layer.down, layer.down_bias)
        hidden = hidden[torch.arange(shape[0], device=self.device), last]
        hidden = hidden if keep is None else hidden[keep]
        return F.linear(F.rms_norm(hidden, hidden.shape[-1:], self.norm, self.eps), self.head)

    def _project(
        self, layer: Layer, normed: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries (B, G, H/G * T, D), turned, one row per head of a group; keys turned and values (B, G, T, D)."""
        batch, length, _ = normed.shape
        heads = F.linear(normed, layer.qkv, layer.qkv_bias).view(batch, length, -1, self.head_size)
        queries, keys, values = heads.split((self.heads, self.groups, self.groups), 2)
        if layer.q_norm is not None:
            queries = F.rms_norm(queries, (self.head_size,), layer.q_norm, self.eps)
            keys = F.rms_norm(keys, (self.head_size,), layer.k_norm, self.eps)
        queries, keys = _rotate(queries.transpose(1, 2), turn), _rotate(keys.transpose(1, 2), turn)
        # Grouped heads become query rows, so keys and values are never repeated.
        return queries.reshape(batch, self.groups, -1, self.head_size), keys, values.transpose(1, 2)

    def _cache(
        self, index: int, rows: torch.Tensor, positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, span: int, dense: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values; return all that the rows may look at, (B, G, span, D) each."""
        all_keys, all_values = self.keys[index], self.values[index]
        all_keys[rows[:, None], :, positions] = keys.transpose(1, 2)
        all_values[rows[:, None], :, positions] = values.transpose(1, 2)
        if dense:
            return all_keys[: len(rows), :, :span], all_values[: len(rows), :, :span]
        return all_keys[:, :, :span][rows], all_values[:, :, :span][rows]


@torch.no_grad()
def overwrite(held: Mapping[str, torch.Tensor], weights: Iterable[tuple[str, torch.Tensor]], needed: Collection[str]) -> None:
    """Copy each of `weights` over the tensor held under its name, as it comes: a stream of them is never whole in memory.

    Nothing of `weights` is kept. Raises EngineError when one of `needed` did not come; those that came are then taken already,
    so what holds them is neither the old policy nor the new one.
    """
    taken = set()
    for name, tensor in weights:
        if name in held:
            held[name].copy_(tensor)
            taken.add(name)
    missing = [name for name in needed if name not in taken]
    if missing:
        raise EngineError(f"the new weights lack {len(missing)} tensors, the first is {missing[0]}")


def _layer(take, prefix: str) -> Layer:
    attention, mlp = prefix + "self_attn.", prefix + "mlp."

    def linear(*names: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        return take(*(n + ".weight" for n in names)), take(*(n + ".bias" for n in names))

    qkv, qkv_bias = linear(*(f"{attention}{x}_proj" for x in "qkv"))
    out, out_bias = linear(attention + "o_proj")
    gate_up, gate_up_bias = linear(mlp + "gate_proj", mlp + "up_proj")
    down, down_bias = linear(mlp + "down_proj")
    norms = (take(prefix + "input_layernorm.weight"), take(prefix + "post_attention_layernorm.weight"))
    head_norms = (take(attention + "q_norm.weight"), take(attention + "k_norm.weight"))
    return Layer(*norms, qkv, qkv_bias, out, out_bias, gate_up, gate_up_bias, down, down_bias, *head_norms)


def _rotate(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    cos, sin = turn
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def _lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros that take memory only where they are written (numpy asks the system for untouched pages)."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = torch.empty(0, dtype=dtype).element_size()
    return torch.from_numpy(np.zeros(shape, dtype={2: np.int16, 4: np.float32}[size])).view(dtype)


def is_plain_decoder(config) -> bool:
    """Whether a model is a dense Llama-style decoder whose every token may look at all before it."""
    return not _beyond(config)


def _beyond(config) -> str:
    """What about a model this decoder cannot run; empty if it can."""
    if config.model_type not in FAMILIES:
        return f"the generator runs {', '.join(FAMILIES)} models, not {config.model_type}"
    if config.hidden_act != "silu":
        return f"the generator knows the silu activation, not {config.hidden_act}"
    windowed = getattr(config, "use_sliding_window", config.model_type == "mistral") and getattr(config, "sliding_window", None)
    return "the generator does not run sliding-window attention" if windowed else ""
