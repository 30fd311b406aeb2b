"""Attention over an FP8 cache: by the constants of a BF16 cache, or by its own."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from law_comparisons.judging import Errors, Result, Rows, errors
from law_comparisons.kernel_classes import before_fp8, decoding, prefilling
from law_comparisons.kernels import Split, splits
from rooflinekit.calibration import entries
from rooflinekit.calibration.entries import Stage, none, select
from rooflinekit.specs.efficiency import Efficiency

if TYPE_CHECKING:
    from rooflinekit.calibration.observations import Observations

STREAMED, PRICED = ("memory", "tile_tokens", "launch_us"), ("activation", "softmax_flops_per_score")


def fp8_cache() -> Iterator[Result]:
    """Predict attention over an FP8 cache by the constants of a BF16 cache, by its own, and by those of kin alone."""
    judged: dict[str, Callable[[Rows], list[Observations]]] = {
        "decode": lambda rows: select(decoding(rows, "fp8"), regime="dram"),
        "prefill": lambda rows: prefilling(rows, "fp8"),
    }
    laws: dict[str, Callable[[Split], bool]] = {
        "constants of a BF16 cache": lambda _: False,
        "its own": lambda _: True,
        "its own, not universal": lambda split: split.own or bool(split.kin),
    }
    for phase, rows_of in judged.items():
        for name, wanted in laws.items():
            found: tuple[list[Errors], list[Errors]] = ([], [])
            for number, split in enumerate(splits()):
                if test := rows_of(split.test):
                    found[0 if split.own else 1].append(errors(test, _fp8_entry(number, own=wanted(split))))
            free = (
                "none" if name == "constants of a BF16 cache" else ", ".join(STREAMED if phase == "decode" else PRICED)
            )
            columns = np.concatenate(found[0]), np.concatenate(found[1])
            yield Result(f"{phase}, {name}", free, columns, name == "its own, not universal")


@cache
def _fp8_entry(number: int, *, own: bool) -> Efficiency:
    """Fit attention over a BF16 cache, and over an FP8 cache where that is to have constants of its own."""
    split, entry = splits()[number], entries.kernel_start()
    for rows in (split.train, split.kin) if split.kin else (split.train,):
        stages = before_fp8(rows, split.own)
        if own and decoding(rows, "fp8"):
            stages.append(Stage(entries.attention_free("attention_fp8", *STREAMED), decoding(rows, "fp8")))
            stages.append(Stage(entries.attention_free("attention_fp8", *PRICED), prefilling(rows, "fp8")))
        entry = entries.run(stages, entry, none)[0]
    return entry if own else entry.model_copy(update={"attention_fp8": None})
