"""The base of every description read from YAML, and the types they share."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema


class Spec(BaseModel):
    """A frozen description: unknown keys are refused, and nothing in it can change after loading."""

    # Validators are built when a spec is first used: at import they would cost more than all the rest.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def _pairs(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return tuple((key, (keys,) if isinstance(keys, str) else keys) for key, keys in value.items())


#: Field name -> keys of ``sources.yaml`` (devices) or source lines (models).
#: A mapping in YAML, pairs inside, since a frozen spec must not hold a dict.
SourceMap = Annotated[
    tuple[tuple[str, tuple[str, ...]], ...],
    BeforeValidator(_pairs),
    PlainSerializer(dict),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}),
]


def _as_yaml(value: object) -> str:
    """Say how YAML wants a number written that it read as text; nothing where the text is none."""
    try:
        number = float(value) if isinstance(value, str) and value[:1].isdigit() and "e" in value else None
    except ValueError:
        number = None
    if number is None:
        return ""
    mantissa, power = f"{number:e}".split("e")
    digits = mantissa.rstrip("0")
    return f" (YAML reads {value} as text: write {digits}{'0' if digits.endswith('.') else ''}e{power})"


def _number(value: object) -> object:
    """Refuse text where a number belongs: YAML reads 273e9 as text, and a unit belongs into the key."""
    if isinstance(value, str | bool):
        message = f"expected a plain number{_as_yaml(value)}"
        raise ValueError(message)  # noqa: TRY004 - pydantic turns only a ValueError into a fault of the field
    return value


Number = BeforeValidator(_number)
Positive = Annotated[float, Field(gt=0), Number]
NotNegative = Annotated[float, Field(ge=0), Number]
Count = Annotated[int, Field(gt=0), Number]
NotNegativeInt = Annotated[int, Field(ge=0), Number]
#: A part of a datasheet peak. Above 1 is a fault of the data or of the counting, never an efficiency.
Fraction = Annotated[float, Field(gt=0, le=1), Number]
#: Lower-case words joined by dashes, dots inside a word allowed: ``llama-3.1-8b``.
Identifier = Annotated[str, Field(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$")]
