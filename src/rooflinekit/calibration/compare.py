"""Measured against predicted: every record that says what it worked on, beside the pass or request that it is of."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from rooflinekit.errors import MissingFigureError, NotCalibratedError
from rooflinekit.measurements import Measurement
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.estimate import Estimate

if TYPE_CHECKING:
    import pandas as pd


class Predicted(NamedTuple):
    """What a record is compared with: seconds of its kind, the work in them, and how the record was read."""

    measured_s: float
    time_s: float
    floor_s: float
    flops: float
    bytes: float
    low_s: float
    high_s: float
    reading: str


@dataclass(frozen=True)
class Compared:
    """
    One record beside its prediction, in seconds.

    ``error`` is predicted / measured - 1; ``mfu`` and ``mbu`` are the work that the model counts over the measured time
    and the datasheet peaks, by phase; ``below_floor`` marks a measurement that no machine can have made.
    """

    record: Measurement
    phase: str
    measured_s: float
    predicted_s: float
    floor_s: float
    low_s: float
    high_s: float
    mfu: float
    mbu: float
    reading: str

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def below_floor(self) -> bool:
        """Whether the measurement is faster than the floor."""
        return self.measured_s < self.floor_s

    @property
    def expected(self) -> bool:
        """Whether the 80% interval holds the measurement; false where there is none."""
        return self.low_s <= self.measured_s <= self.high_s


@dataclass(frozen=True)
class Comparison:
    """All records of a file beside their predictions; ``skipped`` counts those that have none, by reason."""

    rows: tuple[Compared, ...]
    skipped: Mapping[str, int]

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.rows)

    def table(self) -> "pd.DataFrame":
        """Give the rows as a tidy DataFrame."""
        import pandas as pd  # noqa: PLC0415 - loads on first use

        return pd.DataFrame([line(row) for row in self.rows])


class Unreadable(Exception):  # noqa: N818 - no error: a reason for the table
    """Why a record has no prediction."""


def unread(why: str) -> NoReturn:
    """Say why a record has none."""
    raise Unreadable(why)


def compare(records: Iterable[Measurement], deployment: Deployment) -> Comparison:
    """
    Compare measurements with what a deployment is predicted to take.

    Parameters
    ----------
    records : iterable of Measurement
        From :func:`rooflinekit.measurements.read`, or made by hand.
    deployment : Deployment
        What they were measured on.

    Returns
    -------
    comparison : Comparison
        ``.rows``, ``.table()``, ``.skipped``.

    Notes
    -----
    Times of fixed batches are compared with passes; latencies of served requests with service times, each row's
    ``reading`` says so. A running batch that nobody set is output tokens per second x TPOT of the same run.

    Examples
    --------
    The step that "Prefill vs. Decode" measured on a GB10, 74.4 ms:

    >>> import rooflinekit as rk
    >>> step = rk.Measurement(quantity="decode_step_s", value=0.0744, batch=1, context_tokens=2048)
    >>> row, = rk.compare([step], rk.Deployment("qwen3-8b", "gb10")).rows
    >>> print(f"{row.predicted_s:.4f} {row.error:+.1%} MBU {row.mbu:.0%}")
    0.0747 +0.4% MBU 76%
    """
    whole = list(records)
    rows, skipped = [], Counter[str]()
    for record in whole:
        try:
            rows.append(_row(record, predicted(record, deployment, whole), deployment))
        except Unreadable as reason:
            skipped[str(reason)] += 1
    return Comparison(tuple(rows), skipped)


def predicted(record: Measurement, deployment: Deployment, run: Iterable[Measurement] = ()) -> Predicted:
    """Predict one record; `run` holds the records of the same file, for the batch that was running."""
    if record.quantity not in _READINGS:
        unread(_WHY.get(record.quantity, "a count, a state or a total: no time of a pass or request"))
    if record.statistic not in ("single", "mean", "median"):
        unread("spread of a measurement (std, percentile): no prediction of its own")
    if record.value <= 0:
        unread("a time or rate of 0 is no measurement")
    return _READINGS[record.quantity](record, deployment, tuple(run))


def line(row: Compared) -> dict[str, object]:
    """Lay a row out for tables."""
    record = row.record
    return {
        "quantity": record.quantity, "statistic": record.statistic, "phase": row.phase, "batch": record.batch,
        "prompt_tokens": record.prompt_tokens, "output_tokens": record.output_tokens,
        "context_tokens": record.context_tokens, "measured_s": row.measured_s, "predicted_s": row.predicted_s,
        "low_s": row.low_s, "high_s": row.high_s, "floor_s": row.floor_s, "error": row.error, "mfu": row.mfu,
        "mbu": row.mbu, "below_floor": row.below_floor, "reading": row.reading, "line": record.line,
    }  # fmt: skip


# ---- one reading a quantity


def _prefill(record: Measurement, deployment: Deployment, _: tuple[Measurement, ...]) -> Predicted:
    return _of(record.value, _prompt(record, deployment, _need(record, "batch")), "one prefill")


def _prompt_rate(record: Measurement, deployment: Deployment, _: tuple[Measurement, ...]) -> Predicted:
    prompt, batch = _need(record, "prompt_tokens"), _need(record, "batch")
    return _of(prompt * batch / record.value, _prompt(record, deployment, batch), "prompt tokens / rate")


def _decode(record: Measurement, deployment: Deployment, _: tuple[Measurement, ...]) -> Predicted:
    steps = _need(record, "count")
    return _of(record.value / steps, _steps(record, deployment, steps), f"mean of {steps:,.0f} steps")


def _decode_rate(record: Measurement, deployment: Deployment, _: tuple[Measurement, ...]) -> Predicted:
    if record.phase != "decode":
        unread("output tokens/s of a served run: use its TPOT, which has a step of its own")
    steps, batch = record.count or record.output_tokens or 1.0, _need(record, "batch")
    return _of(batch / record.value, _steps(record, deployment, steps), "batch / rate")


def _step(record: Measurement, deployment: Deployment, _: tuple[Measurement, ...]) -> Predicted:
    return _of(record.value, deployment.decode(_context(record), batch=_need(record, "batch")), "one decode step")


def _token(record: Measurement, deployment: Deployment, run: tuple[Measurement, ...]) -> Predicted:
    batch, said = running_batch(record, run)
    step = deployment.decode(_context(record), batch=batch)
    return _of(record.value, step, f"a decode step of {said}; no prefill in between: service time only")


def _first_token(record: Measurement, deployment: Deployment, _: tuple[Measurement, ...]) -> Predicted:
    return _of(record.value, _prompt(record, deployment), "one prefill alone: service time only, no queue")


def _request(record: Measurement, deployment: Deployment, run: tuple[Measurement, ...]) -> Predicted:
    if "loading" in record.includes:
        unread("end to end with loading the model in it: its phases say more")
    prompt, output = _need(record, "prompt_tokens"), _need(record, "output_tokens")
    batch, said = (record.batch, "the batch given") if record.batch else running_batch(record, run)
    whole = deployment.request(prompt, output_tokens=round(output), batch=batch)
    parts = [whole.prefill, *([whole.decode] if output > 1 else [])]
    time_s, floor_s, flops, moved = (
        float(sum(getattr(part, name) for part in parts)) for name in ("time_s", "floor_s", "flops", "bytes")
    )
    reading = f"prefill and decode steps of {said}: service time only"
    return Predicted(record.value, time_s, floor_s, flops, moved, np.nan, np.nan, reading)


def _per_token(record: Measurement, deployment: Deployment, run: tuple[Measurement, ...]) -> Predicted:
    one = _request(record, deployment, run)
    output = _need(record, "output_tokens")
    return one._replace(measured_s=record.value * output, reading=f"end to end / tokens, {one.reading}")


_READINGS: Mapping[str, Callable[[Measurement, Deployment, tuple[Measurement, ...]], Predicted]] = {
    "prefill_time_s": _prefill,
    "prompt_tokens_per_s": _prompt_rate,
    "decode_time_s": _decode,
    "output_tokens_per_s": _decode_rate,
    "decode_step_s": _step,
    "time_per_output_token_s": _token,
    "inter_token_latency_s": _token,
    "time_to_first_token_s": _first_token,
    "end_to_end_s": _request,
    "batch_latency_s": _request,
    "request_per_token_s": _per_token,
}
_WHY = {
    "total_tokens_per_s": "prompt and output tokens in one rate: it mixes the phases, so neither can be read from it",
    "kernel_time_s": "kernels are compared with operators, not with passes",
    "inter_chunk_latency_s": "gaps between chunks: a chunk may hold several tokens",
    "step_time_s": "an engine step whose sequences' contexts the log does not say",
}


# ---- what the readings share


def _need(record: Measurement, name: str) -> float:
    value = getattr(record, name)
    if value is None:
        unread(f"{name} is not in the file: give it")
    return float(value)


def _prompt(record: Measurement, deployment: Deployment, batch: float = 1.0) -> Estimate:
    """Give the prefill of a prompt after the tokens that the cache holds before it (llama-bench's depth)."""
    before = record.context_tokens or 0.0
    whole, cached = before + _need(record, "prompt_tokens"), before + (record.cached_tokens or 0.0)
    return deployment.prefill(whole, cached_tokens=cached, batch=batch)


def _context(record: Measurement) -> float:
    """Tokens in the cache at the middle of the answer, where the record does not say at which."""
    if record.context_tokens is not None:
        return record.context_tokens
    return _need(record, "prompt_tokens") + (_need(record, "output_tokens") - 1.0) / 2.0


def _steps(record: Measurement, deployment: Deployment, steps: float) -> Estimate:
    """Give the step in the middle of a run of steps: time is linear in context between the ends."""
    start = record.context_tokens if record.context_tokens is not None else _need(record, "prompt_tokens")
    return deployment.decode(start + (steps - 1.0) / 2.0, batch=_need(record, "batch"))


def running_batch(record: Measurement, run: Iterable[Measurement]) -> tuple[float, str]:
    """Find how many sequences ran together: as set, or output rate x time per token of the same run."""
    if record.batch is not None:
        return record.batch, f"a batch of {record.batch:g}"
    rates = [one.value for one in run if one.quantity == "output_tokens_per_s" and _same_run(one, record)]
    tpots = [
        one.value
        for one in run
        if one.quantity == "time_per_output_token_s" and one.statistic == "mean" and _same_run(one, record)
    ]
    if rates and tpots:
        batch = max(rates[0] * tpots[0], 1.0)
        return batch, f"{batch:.1f} sequences (output rate x TPOT)"
    if record.concurrency is not None:
        return record.concurrency, f"{record.concurrency:g} sequences, all requests in flight"
    unread("batch is not in the file, nor can it be inferred from a rate and a TPOT: give it")


def _same_run(one: Measurement, other: Measurement) -> bool:
    return (one.line, one.requests, one.concurrency) == (other.line, other.requests, other.concurrency) or (
        one.line is None or other.line is None
    )


def _of(measured_s: float, estimate: Estimate, reading: str) -> Predicted:
    try:
        low, high = estimate.interval()
    except NotCalibratedError:
        low, high = np.nan, np.nan
    return Predicted(
        measured_s, estimate.time_s, estimate.floor_s, estimate.flops, estimate.bytes, low, high, reading
    )  # fmt: skip


def _row(record: Measurement, one: Predicted, deployment: Deployment) -> Compared:
    flops_per_s, bytes_per_s = peaks(deployment)
    return Compared(
        record, _phase(record), one.measured_s, one.time_s, one.floor_s, one.low_s, one.high_s,
        one.flops / one.measured_s / flops_per_s, one.bytes / one.measured_s / bytes_per_s, one.reading,
    )  # fmt: skip


def _phase(record: Measurement) -> str:
    if record.quantity in ("prefill_time_s", "prompt_tokens_per_s", "time_to_first_token_s"):
        return "prefill"
    return "request" if record.quantity in ("end_to_end_s", "batch_latency_s", "request_per_token_s") else "decode"


def peaks(deployment: Deployment) -> tuple[float, float]:
    """Give the datasheet peaks that MFU and MBU are parts of: the arithmetic of the products, and the memory."""
    dtypes = [row.dtype for row in deployment.plan.rows if row.op_class in ("product", "mixture")]
    device = deployment.device
    peak = device.flops_per_s.get(max(dtypes, key=dtypes.count)) if dtypes else None
    if peak is None:
        message = f"{device.id} has no datasheet peak for {dtypes[:1] or 'products'}: MFU needs one"
        raise MissingFigureError(message)
    return peak, device.bytes_per_s
