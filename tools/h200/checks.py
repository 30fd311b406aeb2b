"""The part that checks: a mixture against a plain one, and the FP8 products."""
# ruff: noqa: ANN001, PLR2004, T201 - of tensors; sizes; it prints what it finds

from pathlib import Path

import torch
import torch.nn.functional as nn

from h200.decoder import Product
from h200.mixture import FEW, MANY, SOME, Mixture
from h200.tables import Clock
from h200.timing import DEVICE, FP8, noise, timed


def check(_folder: Path, _clock: Clock) -> None:
    """Compare the mixture with a plain one in FP32, and try the FP8 products."""
    for tokens in (1, 3, 16, 40, 300):
        mixture = Mixture(256, 192, 4, 32, 512)
        layer, x = mixture.weights(), noise(tokens, 256)
        ids, shares = mixture.route(noise(tokens, 32))
        want = plain_mixture(x, ids, shares, layer)
        for sizes in (*FEW, *SOME, *MANY):
            if sizes.depth * 2 <= 256:
                got = mixture(x, ids, shares, layer, sizes).float()
                print("mixture", tokens, sizes, f"{((got - want).norm() / want.norm()).item():.2e}")
    if DEVICE == "cuda":
        check_fp8()


def plain_mixture(x, ids, shares, layer) -> torch.Tensor:
    """Return the mixture computed pair by pair in FP32."""
    out = torch.zeros_like(x, dtype=torch.float32)
    for token in range(len(x)):
        for expert, share in zip(ids[token].tolist(), shares[token].tolist(), strict=True):
            gate, up = (layer[0][expert].float() @ x[token].float()).chunk(2)
            out[token] += share * (layer[1][expert].float() @ (nn.silu(gate) * up))
    return out


def check_fp8() -> None:
    """Print the times of FP8 products by rows and kind of scale."""
    weights = [noise(24576, 4096, dtype=FP8) for _ in range(4)]
    for rows in (1, 8, 16, 32, 2048):
        x = noise(rows, 4096, dtype=FP8)
        for a, b in (((), ()), ((rows, 1), (1, 24576))):
            scales = torch.ones(a, device=DEVICE), torch.ones(b, device=DEVICE)
            try:
                taken = timed(lambda x=x, s=scales: [Product(w, s[1])((x, s[0])) for w in weights], 9, 4)
            except RuntimeError as error:
                print("fp8", rows, a, "refused:", str(error)[:200])
            else:
                print("fp8", rows, a, taken)
