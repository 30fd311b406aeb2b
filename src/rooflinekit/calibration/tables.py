"""Tidy tables of measured times: each shape of file becomes the same columns; which shape it is, its header says."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from rooflinekit import units
from rooflinekit.errors import InvalidInputError

#: Spellings of devices in kernel tables -> ids of the catalogue.
DEVICES = {
    "a100_sxm": "a100-sxm-80gb",
    "h100_sxm": "h100-sxm-80gb",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "b300_sxm": "b300-sxm",
    "rtx_pro_6000_server": "rtx-pro-6000-blackwell-server",
    "b60": "arc-pro-b60",
}
WEIGHTS = {"bfloat16": "bf16", "float16": "fp16", "fp8_static": "fp8"}
#: Products of at least this width both ways are what a model has; narrower ones are drivers' corner cases.
LEAST_WIDTH = 512
#: The tables time products in NVFP4 on one copy of their weights. Up to the size of the largest L2 these stay in it,
#: and come faster than memory: 59 MB in 8 us beyond the launch on a B300, 7.4 TB/s, where large ones come at 5.5.
ONE_COPY, L2_BYTES = "nvfp4", 128e6
_NVFP4_BYTES = 0.5625
#: Tokens up to which a product or mixture counts as a decode step's: a batch and no more.
DECODE_TOKENS = 64


def read_table(path: Path) -> pd.DataFrame:
    """
    Read a table of measured times, whichever of the known shapes it has.

    Parameters
    ----------
    path : Path
        A CSV file. Products (``m, n, k``), attention (``heads`` or ``num_heads``), mixtures (``num_experts``), steps
        (``model, phase, batch``), mixed steps (``chunk_tokens``), single-stream rates (``reading``).

    Returns
    -------
    table : DataFrame
        Columns ``op`` and ``seconds``, and what that kind of line needs; ``file`` names where it is from.

    Raises
    ------
    InvalidInputError
        The file is no CSV of a known shape: the message lists the shapes.
    """
    try:
        raw = pd.read_csv(path)
    except (OSError, ValueError) as fault:
        message = f"{path}: expected a CSV table of measured times: {getattr(fault, 'strerror', None) or fault}"
        raise InvalidInputError(message) from fault
    for needed, read in SHAPES.items():
        if set(needed) <= set(raw.columns):
            return read(raw).assign(file=path.name)
    known = "; ".join(", ".join(columns) for columns in SHAPES)
    message = f"{path}: its columns are {', '.join(raw.columns)}; expected a table with one of these sets: {known}"
    raise InvalidInputError(message)


def _seconds(raw: pd.DataFrame) -> pd.Series:
    return raw["latency_us"] * units.MICRO if "latency_us" in raw else raw["seconds"]


def _common(raw: pd.DataFrame, op: str, dtype: str = "dtype") -> pd.DataFrame:
    """Give the columns that every kernel line has."""
    gpu = raw["gpu"] if "gpu" in raw else pd.Series("", index=raw.index)
    engine = raw["engine"] + "-" + raw["version"] if "engine" in raw else pd.Series("", index=raw.index)
    weights = raw[dtype].replace(WEIGHTS) if dtype in raw else pd.Series("bf16", index=raw.index)
    regime = raw["regime"] if "regime" in raw else pd.Series("dram", index=raw.index)
    shared = {"op": op, "device": gpu.replace(DEVICES), "engine": engine, "weights": weights, "regime": regime}
    return pd.DataFrame({**shared, "seconds": _seconds(raw)})


def _products(raw: pd.DataFrame) -> pd.DataFrame:
    table = _common(raw, "product")
    narrow = raw[["n", "k"]].min(axis=1) < LEAST_WIDTH
    held = (
        (table["weights"] == ONE_COPY) & (raw["n"] * raw["k"] * _NVFP4_BYTES < L2_BYTES) & (table["regime"] == "dram")
    )
    regime = table["regime"].mask(held, "cached").mask(narrow, "narrow")
    return table.assign(
        new_tokens=raw["m"],
        context_tokens=0,
        sequences=1,
        n=raw["n"],
        k=raw["k"],
        regime=regime,
        phase=_phase(raw["m"] > DECODE_TOKENS),
    )


def _phase(prefill: "pd.Series[bool]") -> "pd.Series[str]":
    return prefill.map({True: "prefill", False: "decode"})


def _attention(raw: pd.DataFrame) -> pd.DataFrame:
    """Read both spellings; `context` or `kv_tokens` counts the new tokens too."""
    names = {
        "num_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "q_len": "new_tokens",
        "query_tokens": "new_tokens",
        "context": "held",
        "kv_tokens": "held",
        "batch_size": "sequences",
        "batch": "sequences",
        "kv_cache_dtype": "kv_cache",
    }
    plain = raw.rename(columns=names)
    decode = plain["phase"] == "decode" if "phase" in plain else plain["op"].str.contains("decode")
    new = plain["new_tokens"].mask(decode, 1)
    cache = plain["kv_cache"].replace(WEIGHTS) if "kv_cache" in plain else "bf16"
    kept = plain[["heads", "kv_heads", "head_dim", "sequences"]]
    table = _common(raw, "attention").assign(
        weights="bf16",
        phase=_phase(~decode),
        new_tokens=new,
        context_tokens=plain["held"] - new,
        kv_cache=cache,
        backend=raw.get("backend", ""),
    )
    return table.join(kept)


def _mixtures(raw: pd.DataFrame) -> pd.DataFrame:
    """Read mixtures of one rank; tensor parallelism divides an expert's width, expert parallelism is not read."""
    whole = raw[raw["moe_ep_size"] == 1] if "moe_ep_size" in raw else raw
    parts = whole.get("moe_tp_size", 1)
    kept = whole[["hidden_size", "topk", "num_experts"]].assign(inter_size=whole["inter_size"] // parts)
    table = _common(whole, "mixture").assign(
        phase=_phase(whole["num_tokens"] > DECODE_TOKENS),
        new_tokens=whole["num_tokens"],
        context_tokens=0,
        sequences=1,
        routing=whole.get("distribution", "uniform"),
    )
    return table.join(kept)


#: Small kernel -> its class. Kernels for FP8 inputs are left out: no class of theirs is in a plan.
SMALL = {
    "add_rmsnorm": "norm",
    "head_norm_rotary": "rotary",
    "rotary": "rotary",
    "silu_mul": "activation",
    "kv_write_decode": "cache_write",
    "kv_write_prefill": "cache_write",
}


def _small(raw: pd.DataFrame) -> pd.DataFrame:
    """Read small kernels of the four classes; all launches of one call count as one."""
    kept = raw[raw["kernel"].isin(SMALL)]
    return _common(kept, "small").assign(
        phase="",
        compiled=kept.get("compiled", ""),
        new_tokens=kept["tokens"],
        context_tokens=0,
        sequences=1,
        op_class=kept["kernel"].map(SMALL),
        bytes_per_token=kept["bytes_moved"] / kept["tokens"],
    )


def _whole(op: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Read rows of whole passes as they are."""
    return lambda raw: raw.assign(op=op)


SHAPES: dict[tuple[str, ...], Callable[[pd.DataFrame], pd.DataFrame]] = {
    ("m", "n", "k"): _products,
    ("num_heads", "num_key_value_heads", "context"): _attention,
    ("heads", "kv_heads", "kv_tokens"): _attention,
    ("num_tokens", "num_experts", "topk"): _mixtures,
    ("kernel", "tokens", "bytes_moved"): _small,
    ("reading", "value"): _whole("rate"),
    ("chunk_tokens", "chunk_context_tokens", "decode_batch", "decode_context_tokens", "seconds"): _whole("mixed"),
    ("phase", "batch", "prompt_tokens", "context_tokens", "seconds"): _whole("step"),
}
