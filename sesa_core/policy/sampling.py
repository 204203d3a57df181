"""Drawing one token per row from logits, each row with its own settings and its own uniform number.

Invariant: a row's token depends on its logits, its settings and its uniform alone. The log-prob that comes back is that of
the whole distribution at the row's temperature, before the top-k and top-p cuts. Edge case: at temperature 0 the token is
the argmax, and its log-prob is that of temperature 1 (the distribution at 0 has none worth having).
"""

from collections.abc import Sequence

import torch

from sesa_core.policy.base import Sampling


def draw(logits: torch.Tensor, settings: Sequence[Sampling], uniforms: Sequence[float]) -> tuple[list[int], list[float]]:
    """Tokens and log-probs, B each, for `logits` (B, V); row i is drawn by inverting its distribution at `uniforms[i]` in [0, 1)."""
    log_probs = logits.float()
    if any(s.temperature not in (0, 1) for s in settings):
        temperatures = torch.tensor([s.temperature or 1.0 for s in settings], device=logits.device)
        log_probs = log_probs / temperatures[:, None]
    log_probs = torch.log_softmax(log_probs, -1)
    probs = _cut(log_probs.double().exp(), settings)
    cumulative = probs.cumsum(-1)
    total = cumulative[:, -1:]
    points = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None] * total
    # Kept below the rounded total, else a uniform just under 1 would fall behind the last token that has any mass.
    points = torch.minimum(points, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cumulative, points, right=True)[:, 0]
    greedy = [s.temperature == 0 for s in settings]
    if any(greedy):
        tokens = torch.where(torch.tensor(greedy, device=logits.device), log_probs.argmax(-1), tokens)
    return tokens.tolist(), log_probs.gather(1, tokens[:, None])[:, 0].tolist()


def _cut(probs: torch.Tensor, settings: Sequence[Sampling]) -> torch.Tensor:
    """`probs` (B, V) with what top-k and top-p exclude set to 0; rows are not renormalised."""
    rows = [i for i, s in enumerate(settings) if s.temperature > 0 and (s.top_k > 0 or s.top_p < 1)]
    if not rows:
        return probs
    size = probs.shape[-1]
    index = torch.tensor(rows, device=probs.device)
    ordered, order = probs[index].sort(dim=-1, descending=True, stable=True)
    limits = torch.tensor([settings[i].top_k or size for i in rows], device=probs.device)[:, None]
    ordered = ordered.masked_fill(torch.arange(size, device=probs.device) >= limits, 0.0)
    shares = torch.tensor([settings[i].top_p for i in rows], dtype=torch.float64, device=probs.device)[:, None]
    # top_p keeps the smallest set that reaches the share of what top_k left: the token that crosses the line stays.
    before = ordered.cumsum(-1) - ordered
    ordered = ordered.masked_fill(before >= shares * ordered.sum(-1, keepdim=True), 0.0)
    probs[index] = torch.zeros_like(ordered).scatter(-1, order, ordered)
    return probs
