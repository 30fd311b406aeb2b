"""Families of kernels: which class of operator a kernel's name stands for, under any engine that names it so."""

import re
from collections.abc import Mapping
from types import MappingProxyType

#: Family -> classes of operator that its kernels compute. A fused kernel may hold several small operators.
FAMILIES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "communication": ("collective",),
    "mixture": ("mixture",),
    "attention": ("attention",),
    "scan": ("scan",),
    "product": ("product",),
    "activation": ("activation",),
    "norm": ("norm",),
    "rotary": ("rotary", "norm"),
    "cache_write": ("cache_write",),
    "sampling": ("sampling",),
    "quantisation": (),
    "copy": (),
})  # fmt: skip

#: Tried from the top: an attention kernel's template arguments may name a product, never the other way round.
_PATTERNS = tuple(
    (family, re.compile("|".join(words), re.IGNORECASE))
    for family, words in (
        ("communication", ("nccl", "rccl", "all_?reduce", "all_?gather", "reduce_?scatter", "all_?to_?all",
                           "cross_device", "deep_?ep", "one_?shot", "internode", "intranode")),
        ("mixture", ("moe(?!ment)", "expert", "grouped_?gemm", "group_gemm", "topk_?gating")),
        ("cache_write", ("reshape_and_cache", "concat_and_cache")),  # "flash" in it says for which attention
        ("attention", ("flash", "fmha", "paged_?attention", "splitkv", "sdpa", "mha", "mla", "attn", "attention",
                       "merge_state", "lean_reduction")),
        ("scan", ("selective_scan", "mamba", "gated_delta", "delta_rule", "chunk_(?:fwd|gla|kda)", "recurrent", "wkv",
                  "causal_conv1d")),
        ("quantisation", ("dequant", "(?<!mul_mat_vec_)quantize", "per_token_(?:group_)?(?:quant|cast)", "cast_to_fp8",
                          "scaled_fp8_quant")),
        ("product", ("gemm", "gemv", "nvjet", "xmma", "cutlass", "splitk", "matmul", "mul_mat", "Cijk", r"\bmmv?q\b",
                     "wmma", "marlin", "machete", "bitblas", "wvsplitk", "skinny")),
        ("activation", ("silu", "swiglu", "geglu", "gelu", "act_and_mul", "relu")),
        ("rotary", ("rope", "rotary", "cat_mean_mul_neg")),
        ("norm", ("norm", "rsqrt")),
        ("cache_write", ("reshape_and_cache", "kv_?cache", "cache_kernel", "set_rows", "cpy_", "index_?put", "gather",
                         "index_?select", "embedding", "get_rows")),
        ("sampling", ("arg_?max", "softmax", "top_?k", "sort", "sampl", "multinomial", "cub::")),
        ("copy", ("memcpy", "memset", "copy", "fill", "elementwise", "transpose", "cast", "convert", "contiguous",
                  "reduce_kernel")),
    )
)  # fmt: skip


def family_of(name: str) -> str:
    """
    Name the family of a kernel; empty where the name says nothing.

    Examples
    --------
    >>> [family_of(name) for name in ("internal::gemvx::kernel<...>", "flash::flash_fwd_splitkv_kernel<...>")]
    ['product', 'attention']
    >>> family_of("triton_red_fused_fused_add_rms_norm_2"), family_of("triton_poi_fused_mul_silu_slice_1")
    ('norm', 'activation')
    """
    return next((family for family, pattern in _PATTERNS if pattern.search(name)), "")


def is_cut(name: str) -> bool:
    """
    Tell whether a name was cut: two kernels may then share it.

    Examples
    --------
    >>> is_cut("internal::gemvx::kernel<...>"), is_cut("triton_poi_fused_mul_silu_slice_1")
    (True, False)
    """
    return "..." in name or "…" in name
