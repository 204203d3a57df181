"""Muon: momentum whose update is made orthogonal (Jordan et al. 2024), for weight matrices.

`torch.optim.Muon` works in bfloat16, which a CPU without bfloat16 units emulates (1 to 2 s a step for this model instead of
0.02 s); this one works in float32 and orthogonalises all matrices of one shape together.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # quintic Newton-Schulz, tuned for steepest slope at 0


def orthogonalise(stack: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Nearest semi-orthogonal matrices of a stack (N, R, C), approximately: singular values end up near 1."""
    a, b, c = _COEFFICIENTS
    wide = stack if stack.shape[1] <= stack.shape[2] else stack.transpose(1, 2)
    x = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if stack.shape[1] <= stack.shape[2] else x.transpose(1, 2)


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised, scaled so that an AdamW learning rate fits (0.2 sqrt(max(R, C)))."""

    def __init__(self, params: Iterable[torch.nn.Parameter], lr: float, momentum: float = 0.95, weight_decay: float = 0.01) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[p.shape].append(p)
            for shape, params in by_shape.items():
                updates = orthogonalise(torch.stack([self._momentum(p, group["momentum"]) for p in params]))
                scale = group["lr"] * 0.2 * max(shape) ** 0.5
                for p, update in zip(params, updates, strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-scale)

    def _momentum(self, p: torch.nn.Parameter, momentum: float) -> torch.Tensor:
        buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
        buffer.lerp_(p.grad, 1 - momentum)
        return p.grad.lerp(buffer, momentum)
