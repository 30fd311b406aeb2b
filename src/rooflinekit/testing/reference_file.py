"""A file of reference rows, ``*.roofline.yaml``: what it holds, and how a row's quantity is asked of a deployment.

Nothing in it is evaluated: a row names a step and a quantity of the table below.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from rooflinekit.errors import InvalidInputError, RooflinekitError, SpecError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.estimate import Estimate
from rooflinekit.phases.request import Request
from rooflinekit.specs.catalog import is_path
from rooflinekit.specs.interconnect import LinkChoice
from rooflinekit.specs.spec import Count, NotNegative, NotNegativeInt, Number, Positive, Spec
from rooflinekit.specs.yamlfile import check, read_mapping
from rooflinekit.testing.results import SUFFIX

#: What is asked: a pass, a request, or (None) the deployment itself.
Asked = Estimate | Request | None
_Busy = Annotated[float, Field(ge=0, allow_inf_nan=True), Number]
_Group = tuple[Positive, NotNegative, Positive]


def _value(value: object) -> object:
    """Refuse what is neither a number nor a word: YAML reads `yes` as true, which is 1 to Python."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float | str)):
        message = "expected a plain number, or a word for `bound`"
        raise ValueError(message)
    return value


_Value = Annotated[float | str | None, BeforeValidator(_value)]


def _whole(value: float) -> float:
    """Give an integer where the number is one: labels show it so."""
    return int(value) if value.is_integer() else value


class Prefill(Spec):
    """A pass over prompts."""

    prompt_tokens: Positive
    cached_tokens: NotNegative = 0
    batch: Positive = 1
    busy_s: _Busy = 0


class Decode(Spec):
    """One decode step; `context_tokens` are in the cache before it."""

    context_tokens: NotNegative
    batch: Positive = 1
    busy_s: _Busy = 0


class ChunkedPrefill(Spec):
    """A prompt in passes of at most `token_budget` tokens."""

    prompt_tokens: Count
    token_budget: Count
    cached_tokens: NotNegativeInt = 0
    busy_s: _Busy = 0


class WholeRequest(Spec):
    """Equal requests that run together."""

    prompt_tokens: Positive
    output_tokens: Count
    batch: Positive = 1
    cached_tokens: NotNegative = 0
    busy_s: _Busy = 0


class Step(Spec):
    """What is estimated: exactly one of these."""

    prefill: Prefill | None = None
    decode: Decode | None = None
    chunked_prefill: ChunkedPrefill | None = None
    request: WholeRequest | None = None
    groups: Annotated[tuple[_Group, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one(self) -> "Step":
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            message = f"expected one of {', '.join(type(self).model_fields)}, found {' and '.join(given) or 'none'}"
            raise ValueError(message)
        return self

    @property
    def kind(self) -> str:
        """Name of the one that is given."""
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)

    def ask(self, deployment: Deployment) -> Estimate | Request:
        """Estimate it."""
        if self.groups is not None:
            return deployment.step(*(tuple(map(_whole, group)) for group in self.groups))
        of: Spec = getattr(self, self.kind)
        asked: Estimate | Request = getattr(deployment, self.kind)(**dict(of))
        return asked


class Quantity(NamedTuple):
    """Of which steps it is a quantity, in which unit, and how it is read off."""

    steps: tuple[str | None, ...]
    unit: str
    of: Callable[[Deployment, Any], float | str]


def _read(*steps: str | None, unit: str, name: str) -> Quantity:
    """Read an attribute of what a step gives; of the deployment where there is no step."""
    return Quantity(steps, unit, lambda deployment, asked: getattr(deployment if asked is None else asked, name))


_PASSES = ("prefill", "decode", "chunked_prefill", "groups")
# fmt: off
#: Every quantity that a row may name.
QUANTITIES: Mapping[str, Quantity] = {
    **{name: _read(*_PASSES, unit=unit, name=name) for name, unit in {
        "time_s": "s", "floor_s": "s", "flops": "FLOP", "bytes": "B", "weight_bytes": "B", "kv_bytes": "B",
        "bound": "",
    }.items()},
    **{name: _read("request", unit="s", name=name) for name in (
        "time_to_first_token_s", "time_per_output_token_s", "end_to_end_s",
    )},
    "kv_bytes_per_token": _read(None, unit="B", name="kv_bytes_per_token"),
    "decode_ceiling_tokens_per_s": _read(None, unit="tokens/s", name="decode_ceiling_tokens_per_s"),
    "crossover_tokens": Quantity((None,), "tokens", lambda deployment, _: deployment.crossover().tokens),
}
# fmt: on


class Row(Spec):
    """One value, measured on a machine or predicted earlier, and what it is a value of."""

    id: Annotated[str, Field(min_length=1, pattern=r"^\S(.*\S)?$")]
    step: Step | None = None
    quantity: str
    measured: _Value = None
    predicted: _Value = None
    tolerance: NotNegative | None = None
    source: str = ""
    note: str = ""

    @model_validator(mode="after")
    def _comparable(self) -> "Row":
        """Refuse what cannot be compared; each message names the key and its value."""
        fault = _unknown(self.quantity) or _misplaced(self.quantity, self.step) or _no_value(self)
        if fault:
            raise ValueError(fault)
        return self

    @property
    def kind(self) -> str:
        """``measured`` or ``predicted``."""
        return "predicted" if self.measured is None else "measured"

    @property
    def value(self) -> float | str:
        """The one value."""
        return self.measured if self.measured is not None else self.predicted  # type: ignore[return-value]


def _unknown(quantity: str) -> str:
    known = ", ".join(QUANTITIES)
    return "" if quantity in QUANTITIES else f"`quantity` = {quantity!r}: expected one of {known}"


def _misplaced(quantity: str, step: Step | None) -> str:
    steps = QUANTITIES[quantity].steps
    given = None if step is None else step.kind
    if given in steps:
        return ""
    expected = (
        "no `step`: it is one of the deployment" if None in steps else f"a `step` of {', '.join(map(str, steps))}"
    )
    return f"`quantity` = {quantity!r} {f'of `{given}`' if given else 'without a `step`'}: expected {expected}"


def _no_value(row: Row) -> str:
    given = {name: value for name in ("measured", "predicted") if (value := getattr(row, name)) is not None}
    if len(given) != 1:
        return f"{row.id}: expected one of the keys `measured` and `predicted`, found {'both' if given else 'none'}"
    ((name, value),) = given.items()
    if row.quantity == "bound":
        if not isinstance(value, str) or row.tolerance is not None:
            words = "compute, memory, communication or overhead"
            return f"`{name}` = {value!r}: expected {words}, and no `tolerance`"
        return ""
    if isinstance(value, str) or value < 0:
        return f"`{name}` = {value!r}: expected a plain number, 0 or more (YAML reads 273e9 as text: write 2.73e+11)"
    return "" if row.tolerance is not None else f"{row.id}: missing key `tolerance`: add it, 0.03 is 3%"


class Settings(Spec):
    """Keywords of :class:`~rooflinekit.Deployment`."""

    engine: str | None = None
    weights: str | None = None
    kv_cache: str | None = None
    compute: str | None = None
    efficiency: str = "calibrated"
    routing_skew: NotNegative = 0
    memory_check: bool = True
    tensor_parallel: Count = 1
    pipeline_parallel: Count = 1
    expert_parallel: Count = 1
    data_parallel_attention: Count = 1
    expert_imbalance: Positive = 1
    interconnect: str | LinkChoice | None = None


class ReferenceFile(Spec):
    """One deployment and its rows."""

    model: str | Mapping[str, Any]
    device: str | Mapping[str, Any]
    settings: Settings = Settings()
    source: str = ""
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _distinct(self) -> "ReferenceFile":
        ids = [row.id for row in self.rows]
        twice = next((one for one in ids if ids.count(one) > 1), None)
        if twice is not None:
            message = f"`rows` holds the id {twice!r} twice: ids must differ"
            raise ValueError(message)
        return self

    def deployment(self, folder: Path) -> Deployment:
        """Make the deployment; paths start at the folder of the file."""
        return Deployment(_placed(self.model, folder), _placed(self.device, folder), **dict(self.settings))


def _placed(name: str | Mapping[str, Any], folder: Path) -> str | Mapping[str, Any]:
    if isinstance(name, str) and is_path(name):
        return str(folder / Path(name).expanduser())
    return name


def load_reference_file(path: Path) -> tuple[ReferenceFile, Deployment]:
    """
    Load a file and the deployment that it names.

    Raises
    ------
    SpecError
        One line that names the file, the key and the value at fault.
    """
    if not path.name.endswith(SUFFIX):
        message = f"{path}: expected a name that ends in {SUFFIX}"
        raise InvalidInputError(message)
    whole = check(ReferenceFile, read_mapping(path), str(path))
    try:
        return whole, whole.deployment(path.parent)
    except RooflinekitError as error:
        message = f"{path}: {error}"
        raise SpecError(message) from None
