"""What one sequence holds over its length, for eight families of architecture.

python examples/kv_over_context.py [--png kv.png]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import rooflinekit as rk
from rooflinekit import units
from rooflinekit.phases.memory import cache_shape
from rooflinekit.reports.cache import cache_precision
from rooflinekit.reports.plots import kv_cache_figure, save
from rooflinekit.reports.tables import render

FAMILIES = {
    "llama-3.1-70b": "grouped queries",
    "qwen3-8b": "grouped queries",
    "gemma-3-27b": "5 of 6 layers see 1,024 tokens",
    "deepseek-v3": "one latent a token",
    "gpt-oss-120b": "half of the layers see 128 tokens",
    "qwen3-next-80b-a3b": "3 of 4 layers hold a state",
    "nemotron-3-nano-30b-a3b": "6 of 52 layers hold K and V",
    "mamba-codestral-7b": "states alone",
}
SHOWN = (1024, 8192, 32_768, 131_072)
DRAWN = tuple(round(256 * 2 ** (step / 4)) for step in range(37))


def row(name: str) -> dict[str, str]:
    """Say what a sequence of some lengths holds."""
    model = rk.load_model(name)
    cache = cache_shape(model, cache_precision(model))
    held = {f"{tokens:,} tokens": units.binary_bytes(float(cache.held(float(tokens)))) for tokens in SHOWN}
    return {"model": name, "attention": FAMILIES[name], **held}


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table and, if asked, draw the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--png", type=Path, help="where to draw (.png, .svg or .pdf)")
    arguments = parser.parse_args(argv)
    print(render([row(name) for name in FAMILIES], "table", title="KV cache and states of one sequence"))
    if arguments.png:
        save(kv_cache_figure(list(FAMILIES), DRAWN), arguments.png)


if __name__ == "__main__":
    main()
