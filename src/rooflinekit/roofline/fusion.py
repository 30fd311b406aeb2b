"""What an engine runs inside a neighbouring kernel: the laws of others' entries, without what it saves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rooflinekit.roofline.laws import Laws, same_engine
from rooflinekit.specs.efficiency import Efficiency, ProductLaws

Change = Callable[[Efficiency], dict[str, Any]]


def fused(laws: Laws, engine: str, kernels: Sequence[str]) -> Laws:
    """
    Give laws under which an engine's fused kernels cost no launch of their own.

    Entries of the engine itself were measured as it runs: they stay as they are.

    Examples
    --------
    >>> from rooflinekit.roofline.laws import Laws
    >>> from rooflinekit.specs.efficiency import Efficiency, ElementwiseLaw
    >>> apart = Efficiency(name="card/vllm", engine="vllm", rotary=ElementwiseLaw(memory=0.4, launch_us=3))
    >>> inside = fused(Laws((apart,), ""), "tensorrt-llm", ["rotary"])
    >>> inside.elementwise("rotary")[0].launch_us, inside.basis
    (0.0, 'card/vllm, fused as in tensorrt-llm')
    """
    own = [same_engine(entry.engine, engine) for entry in laws.chain]
    chain = (one if mine else _fused(one, engine, kernels) for one, mine in zip(laws.chain, own, strict=True))
    return replace(laws, chain=tuple(chain))


def _fused(entry: Efficiency, engine: str, kernels: Sequence[str]) -> Efficiency:
    changes: dict[str, Any] = {"name": f"{entry.name}, fused as in {engine}"}
    for kernel in kernels:
        changes |= FUSIONS[kernel](entry)
    return entry.model_copy(update=changes)


def _launched_inside(op_class: str) -> Change:
    """Build the change of a small kernel that runs inside another: its bytes stay, its launch goes.

    The embedding, one launch a pass of the class of cache writes, goes with them.
    """

    def change(entry: Efficiency) -> dict[str, Any]:
        law = getattr(entry, op_class)
        return {} if law is None else {op_class: law.model_copy(update={"launch_us": 0.0})}

    return change


def _quantised_before(entry: Efficiency) -> dict[str, Any]:
    """Quantise an FP8 product's input where it is written: no pass over it, and no launch beside the product's own."""
    products = {name: getattr(entry.products, name) for name in ProductLaws.model_fields}
    eight, plain = products["fp8"], products["bf16"]
    if eight is None:
        return {}
    launch_us = min(one.launch_us for one in (eight, plain) if one is not None)
    products["fp8"] = eight.model_copy(update={"quantisation_ps_per_element": 0.0, "launch_us": launch_us})
    return {"products": ProductLaws(**products)}


def _widened_inside(_: Efficiency) -> dict[str, Any]:
    """Read an FP8 cache as any other: what another engine pays for widening it is not this one's."""
    return {"attention_fp8": None}


#: Kernel that an engine's file may name -> what changes in an entry that was measured with it apart.
FUSIONS: Mapping[str, Change] = {
    "rotary": _launched_inside("rotary"),
    "cache_write": _launched_inside("cache_write"),
    "static_fp8_quantisation": _quantised_before,
    "fp8_cache_widening": _widened_inside,
}
