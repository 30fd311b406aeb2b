"""Freeze estimates as a file of reference rows, so that a capacity plan fails loudly where a prediction moves."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from os.path import relpath
from pathlib import Path
from typing import Any

import yaml

import rooflinekit
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.specs.catalog import is_path
from rooflinekit.specs.step import checked
from rooflinekit.specs.yamlfile import check
from rooflinekit.testing.reference_file import QUANTITIES, Settings
from rooflinekit.testing.results import SUFFIX

_DIGITS = 6
#: Values are written to six digits, so a narrower tolerance would miss by the rounding.
_LEAST_TOLERANCE = 1e-5
_REQUEST = ("time_to_first_token_s", "time_per_output_token_s", "end_to_end_s")
Named = str | Mapping[str, Any]


def freeze(
    model: Named,
    device: Named,
    *,
    prompt_tokens: float = 2048,
    output_tokens: float = 200,
    batch: Sequence[float] = (1,),
    context_tokens: Sequence[float] = (),
    tolerance: float = 0.02,
    folder: Path | None = None,
    **choices: Any,  # noqa: ANN401 - those of Deployment
) -> str:
    """
    Write estimates as the text of a ``*.roofline.yaml`` file, which passes as it is.

    Parameters
    ----------
    model, device : str or mapping
        As for :class:`~rooflinekit.Deployment`; a path is written relative to `folder`.
    prompt_tokens, output_tokens : float
        Of each request. [token]
    batch : sequence of float
        Requests that run together: rows for each size.
    context_tokens : sequence of float
        Contexts of decode steps; the prompt, if none is given. [token]
    tolerance : float
        How far a prediction may move, relatively; 0.00001 at least.
    folder : Path, optional
        Where the file will lie; None leaves paths as they are given.
    **choices
        Further arguments of :class:`~rooflinekit.Deployment`.

    Returns
    -------
    text : str
        Per batch: time to first token, time per output token, end to end, and a decode step at each context; and the
        KV cache of a token, exactly. The source says version, date and the entry that the times rest on.

    Examples
    --------
    >>> text = freeze("qwen3-8b", "gb10", batch=[1, 8])
    >>> print(text.splitlines()[0])
    model: qwen3-8b
    >>> [line.split(",")[0] for line in text.splitlines() if "decode" in line]
    ['- {id: decode-2048-batch-1', '- {id: decode-2048-batch-8']
    """
    if checked("tolerance", tolerance) < _LEAST_TOLERANCE:  # type: ignore[operator]
        message = f"tolerance={tolerance!r}: expected {_LEAST_TOLERANCE:.5f} or more: values are frozen to six digits"
        raise InvalidInputError(message)
    deployment = Deployment(model, device, **choices)
    sizes = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens}
    steps = [{"request": {**sizes, "batch": one}} for one in batch]
    steps += [
        {"decode": {"context_tokens": held, "batch": one}}
        for held in context_tokens or [prompt_tokens]
        for one in batch
    ]
    rows = [row for step in steps for row in _rows(deployment, step, tolerance)]
    rows.append({"id": "kv-per-token", **_frozen(deployment, None, "kv_bytes_per_token"), "tolerance": 0})
    settings = check(Settings, choices, "settings of a file").model_dump(exclude_defaults=True)
    whole = {
        "model": _placed(model, folder),
        "device": _placed(device, folder),
        **({"settings": settings} if settings else {}),
        "source": _source(deployment),
    }
    return "".join(f"{key}: {_flow(value)}\n" for key, value in whole.items()) + "".join(
        ("rows:\n", *(f"- {_flow(row)}\n" for row in rows))
    )


def write_frozen(path: Path, text: str, *, overwrite: bool = False) -> None:
    """Write the text, but not over a file that is there unless told to."""
    check_target(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def check_target(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a name that pytest does not collect, and a file that is there."""
    if not path.name.endswith(SUFFIX):
        message = f"{path}: expected a name that ends in {SUFFIX}, which pytest collects"
        raise InvalidInputError(message)
    if path.exists() and not overwrite:
        message = f"{path} is there: give --force (overwrite=True) to replace it"
        raise InvalidInputError(message)


def _rows(
    deployment: Deployment, step: Mapping[str, Mapping[str, float]], tolerance: float
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a step; a request of one token has no time per output token."""
    ((kind, sizes),) = step.items()
    for quantity in _REQUEST if kind == "request" else ("time_s",):
        row = _frozen(deployment, step, quantity)
        if isfinite(row["predicted"]):
            held = f"{kind}-{sizes.get('context_tokens', 0):.12g}"
            what = quantity.removesuffix("_s").replace("_", "-") if kind == "request" else held
            yield {"id": f"{what}-batch-{sizes['batch']:.12g}", **row, "tolerance": tolerance}


def _frozen(deployment: Deployment, step: Mapping[str, Any] | None, quantity: str) -> dict[str, Any]:
    asked = None
    for kind, sizes in (step or {}).items():
        asked = getattr(deployment, kind)(**sizes)
    value = float(QUANTITIES[quantity].of(deployment, asked))
    kept = value if step is None else float(f"{value:.{_DIGITS}g}")
    return {**({} if step is None else {"step": step}), "quantity": quantity, "predicted": kept}


def _source(deployment: Deployment) -> str:
    day = datetime.now(tz=UTC).date().isoformat()
    return f"frozen by rooflinekit {rooflinekit.__version__} on {day}, basis {deployment.timing.laws.basis}"


def _placed(name: Named, folder: Path | None) -> Named:
    """Give a path as it is seen from the folder of the file."""
    if isinstance(name, str) and is_path(name) and folder is not None and not name.startswith("~"):
        seen = relpath(Path(name).absolute(), folder.absolute())
        return seen if is_path(seen) else f"./{seen}"
    return name


def _flow(value: object) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**9, allow_unicode=True)
    return text.removesuffix("...\n").rstrip("\n")
