"""Small kernels, fused by torch.compile."""
# ruff: noqa: ANN001, ANN201 - of tensors, what torch.compile makes of them

import functools

import torch
import torch.nn.functional as nn

from h200.timing import BF16, FP8

FP8_MAX = 448.0
EPS = 1e-6


def add_norm(x, residual, weight):
    """Return the RMS norm of the sum, and the sum."""
    total = x.float() + residual.float()
    scaled = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + EPS)
    return scaled.to(BF16) * weight, total.to(BF16)


def norm_rotary(x, weight, cosine, sine):
    """Norm every head, then turn it by its position."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
    wide = wide.to(BF16) * weight
    left, right = wide.chunk(2, -1)
    return (wide * cosine + torch.cat((-right, left), -1) * sine).to(BF16)


def rotary(x, cosine, sine):
    """Turn every head by its position."""
    left, right = x.chunk(2, -1)
    return (x * cosine + torch.cat((-right, left), -1) * sine).to(BF16)


def silu_mul(x):
    """Return SiLU of the first half times the second half."""
    gate, up = x.chunk(2, -1)
    return nn.silu(gate) * up


def quantised(x, inverse):
    """Return FP8 by a known scale."""
    return (x.float() * inverse).clamp(-FP8_MAX, FP8_MAX).to(FP8)


def add_norm_fp8(x, residual, weight, inverse):
    """As add_norm, with the norm leaving as FP8."""
    normed, total = add_norm(x, residual, weight)
    return quantised(normed, inverse), total


def silu_mul_fp8(x, inverse):
    """As silu_mul, leaving as FP8."""
    return quantised(silu_mul(x), inverse)


def quantise_tensor(x):
    """Return FP8 and its scale, from the largest number of the tensor."""
    scale = (x.abs().amax().float() / FP8_MAX).clamp(min=1e-12)
    return quantised(x, 1.0 / scale), scale


def quantise_token(x):
    """Return FP8 and its scales, from the largest number of every row."""
    scale = (x.abs().amax(-1, keepdim=True).float() / FP8_MAX).clamp(min=1e-12)
    return quantised(x, 1.0 / scale), scale


@functools.cache
def sized(function):
    """Compile so that every size is an argument of the kernel, the width too."""
    return torch.compile(function, dynamic=True)


@functools.cache
def fixed(function):
    """Compile for the widths met; the count of tokens becomes an argument at its second value."""
    return torch.compile(function)
