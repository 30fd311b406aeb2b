"""Verdict on a startup log: the KV cache that it prints, beside the engine's rule and what the settings lead to."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from rooflinekit import units
from rooflinekit.calibration.deviations import Symptom, tell
from rooflinekit.calibration.diagnose import NOTHING, Diagnosis
from rooflinekit.calibration.memory_check import TARGET, check_logged, check_settings, memory_rows
from rooflinekit.measurements import Reading
from rooflinekit.phases.deployment import Deployment

#: What the rule of pages is off by, where the log prints the pool to two digits.
RULE = 0.005
_WHOLE_LOG = "the startup log whole: its settings, the memory left for the cache, and its tokens"
_OTHER = "check model, KV dtype, tensor parallelism and version against what the server was started with"


def diagnose_memory(reading: Reading, deployment: Deployment) -> Diagnosis:
    r"""
    Compare the KV cache that a startup log prints with two predictions.

    Parameters
    ----------
    reading : Reading
        Of a log of vLLM whose records name model and device.
    deployment : Deployment
        What was started.

    Returns
    -------
    diagnosis : Diagnosis
        ``symptoms`` are tokens and requests by the engine's rule from the printed memory, which is within 0.5% as a
        rule, and memory and tokens from the settings alone, within 4%: their deviations are counted in these.

    Raises
    ------
    InvalidInputError
        The reading holds no memory, or names no model or device.

    Examples
    --------
    131,072 bytes a token on an RTX 3090, where 3.81 GiB were left: 1,950 pages of 16, of which 1,250 a request.

    >>> from rooflinekit.measurements import read
    >>> log = b"Memory profiling results: kv_cache_size=3.81GiB\n# GPU blocks: 1952, # CPU blocks: 0\n"
    >>> log += b"Maximum concurrency for 20000 tokens per request: 1.56x\n"
    >>> reading = read("v0.log", content=log, model="llama-3.1-8b", device="rtx-3090")
    >>> found = diagnose_memory(reading, Deployment("llama-3.1-8b", "rtx-3090"))
    >>> for one in found.symptoms:
    ...     print(one.name, one.observed, round(one.expected, 2), one.basis)
    concurrency 1.56 1.56 3.81 GiB of a GPU at 128 KiB a token, by the engine's rule
    """
    rows = memory_rows(reading)
    by_rule = [one for row in rows.to_dict("records") for one in _by_rule(row, deployment)]
    settings = check_settings(rows).to_dict("records")
    by_settings = [one for row in settings for one in _by_settings(row)]
    if not by_rule and not by_settings:
        return _untold(rows)
    return _concluded(by_rule, by_settings, "; ".join(str(row["reason"]) for row in settings if row["reason"]))


def _by_rule(row: Mapping[Any, Any], deployment: Deployment) -> Iterator[Symptom]:
    for one in check_logged(pd.DataFrame([row])).to_dict("records"):
        each = units.binary_bytes(float(deployment.kv_bytes_per_token))
        how = f" at {each} a token" if one["uniform"] else ", whose layers share pages in groups"
        basis = f"{units.binary_bytes(float(row['kv_cache_bytes']))} of a GPU{how}, by the engine's rule"
        yield from _symptom("kv_tokens", one["kv_cache_tokens"], one["predicted_tokens"], RULE, basis)
        yield from _symptom("concurrency", one["max_concurrency"], one["predicted_concurrency"], RULE, basis)


def _by_settings(row: Mapping[Any, Any]) -> Iterator[Symptom]:
    basis = "from the settings alone"
    yield from _symptom("kv_pool", row["kv_bytes"], row["predicted_kv_bytes"], TARGET, basis)
    yield from _symptom("kv_tokens", row["kv_cache_tokens"], row["predicted_tokens"], TARGET, basis)


def _symptom(name: str, logged: float | None, expected: float | None, usual: float, basis: str) -> Iterator[Symptom]:
    """Give one figure that is known both ways."""
    if logged and expected:
        yield Symptom(name, float(logged), float(expected), 0.0, (logged / expected - 1.0) / usual, basis)


def _untold(rows: pd.DataFrame) -> Diagnosis:
    """Say what the memory that is printed would hold, or that there is none beside what it holds."""
    said = (
        "cannot tell: tokens or requests stand in the log, but neither the cache's memory nor settings that lead to it"
    )
    for row, one in zip(rows.to_dict("records"), check_logged(rows).to_dict("records"), strict=False):
        pool, tokens = units.binary_bytes(float(row["kv_cache_bytes"])), f"{one['predicted_tokens']:,.0f}"
        said = f"cannot tell: {pool} of cache a GPU hold {tokens} tokens by the engine's rule, and the log prints none"
    return Diagnosis(said, None, (), (), "none yet", _WHOLE_LOG)


def _concluded(by_rule: list[Symptom], by_settings: list[Symptom], reason: str) -> Diagnosis:
    symptoms = (*by_rule, *by_settings)
    off_rule = [one for one in by_rule if abs(one.deviations) > 1.0]
    off = [one for one in by_settings if abs(one.deviations) > 1.0]
    if off_rule:
        said = f"memory: {tell(off_rule[0])} by the engine's rule: another model, dtype or engine than given"
        return Diagnosis(said, None, (), symptoms, _OTHER, _WHOLE_LOG)
    if off:
        said = f"memory: {tell(off[0])} from the settings{f': {reason}' if reason else ''}"
        return Diagnosis(said, None, (), symptoms, "none needed where the reason holds", _WHOLE_LOG)
    return Diagnosis(f"nothing unusual: {tell(symptoms[0])}", None, (), symptoms, NOTHING, NOTHING)
