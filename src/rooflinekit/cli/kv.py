"""``rooflinekit kv``: what the KV cache of a model takes, by kind of layer; no device is needed."""

from rooflinekit.cli import options
from rooflinekit.cli.output import model_of, remark, show
from rooflinekit.units import MIB


def kv(
    model: options.ModelName,
    *,
    tokens: options.Tokens = 2048,
    sequences: options.Sequences = 1,
    kv_cache: options.KvCache = None,
    assume: options.Assume = None,
    form: options.Format = "table",
) -> None:
    """Tabulate the KV cache by kind of layer: of one token, of one sequence and of all."""
    from rooflinekit.reports.cache import cache_precision, cache_rows  # noqa: PLC0415 - loaded when asked for

    spec = model_of(model, assume)
    precision = cache_precision(spec, kv_cache)
    rows = cache_rows(spec, precision, tokens, sequences)
    show(rows, form, title=f"{spec.id}: {precision.kv_cache} KV cache of {sequences:,} x {tokens:,} tokens")
    if rows:
        held = rows[-1]["kv_cache_bytes"]
        remark(form, f"in all {held:,.0f} bytes, {held / MIB:,.1f} MiB")
