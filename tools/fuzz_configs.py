"""Fuzz the config.json reader for a while, guided by coverage: a job of its own, beside the suite's own fuzz test.

``pip install atheris``, then ``python tools/fuzz_configs.py -max_total_time=600 [CORPUS]``; options are libFuzzer's.
Whatever bytes a file holds, the reader gives a model whose parameters recount, or raises our error; anything else
stops it.
"""
# ruff: noqa: INP001 - a script, no package

import json
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports():
    from rooflinekit.errors import RooflinekitError
    from rooflinekit.specs.huggingface import load_config, model_from_config

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "configs" / "configs.json"
CONFIGS = [row["config"] for row in json.loads(FIXTURES.read_text(encoding="utf-8"))]
KEYS = sorted({key for config in CONFIGS for key in config})
FILE = Path(tempfile.mkdtemp()) / "config.json"


def fuzz(data: bytes) -> None:
    """Read bytes as a file, or a real config with some keys changed."""
    source = atheris.FuzzedDataProvider(data)
    try:
        if source.ConsumeBool():
            FILE.write_bytes(source.ConsumeBytes(4096))
            model = load_config(FILE)
        else:
            model = model_from_config(mutated(source), "fuzzed")
    except RooflinekitError:
        return
    counts = model.parameters
    if not 0 < counts.active <= counts.total:
        message = f"{counts} of {model.id}"
        raise AssertionError(message)


def mutated(source: atheris.FuzzedDataProvider) -> dict[str, object]:
    """Take a real config and change, drop or add a few keys."""
    config: dict[str, object] = dict(source.PickValueInList(CONFIGS))
    for _ in range(source.ConsumeIntInRange(1, 4)):
        key = source.PickValueInList(KEYS)
        config[key] = value(source)
        if source.ConsumeBool():
            del config[key]
    return config


def value(source: atheris.FuzzedDataProvider) -> object:
    """Draw a value of a kind that configs hold, rightly or not."""
    kinds = [
        lambda: source.ConsumeIntInRange(-3, 100_000),
        lambda: source.ConsumeInt(8),
        source.ConsumeFloat,
        source.ConsumeBool,
        lambda: None,
        lambda: source.ConsumeUnicodeNoSurrogates(8),
        lambda: [source.ConsumeIntInRange(0, 64) for _ in range(4)],
        lambda: source.PickValueInList(CONFIGS).get(source.PickValueInList(KEYS)),
    ]
    return source.PickValueInList(kinds)()


if __name__ == "__main__":
    atheris.Setup(sys.argv, fuzz)
    atheris.Fuzz()
