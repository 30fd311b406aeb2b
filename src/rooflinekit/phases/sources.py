"""Where the figures behind an estimate come from, one line each."""

from collections.abc import Iterator

from rooflinekit import units
from rooflinekit.phases.estimate import Estimate
from rooflinekit.specs.catalog import load_sources
from rooflinekit.specs.device import Device
from rooflinekit.specs.model import Model


def estimate_sources(estimate: Estimate) -> tuple[str, ...]:
    """List the device's, the model's and the efficiency's sources."""
    deployment = estimate.deployment
    lines = (*_device(deployment.device, estimate), *_model(deployment.model), *_laws(estimate))
    return tuple(lines)


def titles(keys: tuple[str, ...]) -> str:
    """Spell source keys out by their titles; a key that the table lacks stands for itself."""
    table = load_sources()
    return "; ".join(str(table.get(key, {}).get("title", key)) for key in keys) or "no source given"


def _device(device: Device, estimate: Estimate) -> Iterator[str]:
    keys = dict(device.datasheet.sources)
    rates = estimate.timing.rates
    if rates.described == "measured":
        for row in device.measured:
            if row.ceiling:
                yield f"{device.id} {row.quantity} = {row.value:g}: {titles(row.source)}"
        return
    yield f"{device.id} bandwidth = {units.si(device.bytes_per_s, 'B/s')}: {titles(keys.get('bandwidth_gb_per_s', ()))}"
    dtypes = dict.fromkeys(row.dtype for row in estimate.timing.plan.rows if row.op_class in ("product", "attention"))
    for dtype in dtypes:
        peak = rates.flops_per_s.get(dtype)
        if peak is not None:
            said = titles(keys.get(f"peak_dense_tflops.{dtype}", ()))
            yield f"{device.id} {dtype} peak = {units.si(peak, 'FLOP/s')}: {said}"


def _model(model: Model) -> Iterator[str]:
    for what, keys in model.sources:
        yield f"{model.id} {what}: {'; '.join(keys)}"
    if not model.sources:
        yield f"{model.id}: no source given"


def _laws(estimate: Estimate) -> Iterator[str]:
    for entry in estimate.timing.laws.chain:
        used = any(law.basis.startswith(f"{entry.name} ") for law in estimate.timing.row_laws)
        for evidence in entry.evidence if used else ():
            note = f" ({evidence.note})" if evidence.note else ""
            yield f"{entry.name} {evidence.constant}: {evidence.source}{note}"
