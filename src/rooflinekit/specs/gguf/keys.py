"""The keys of a GGUF file, each taken with its type and range, and named where it is missing or wrong."""

from typing import TYPE_CHECKING, Any, NoReturn

from rooflinekit.errors import SpecError
from rooflinekit.specs.gguf.architectures import ARCHITECTURES, Architecture
from rooflinekit.specs.gguf.header import Header

if TYPE_CHECKING:
    from collections.abc import Mapping

_LARGEST_COUNT = 1 << 40


class Keys:
    """The keys of one file, those of its architecture without their prefix."""

    def __init__(self, header: Header) -> None:
        self.path = header.path
        self._keys: Mapping[str, Any] = header.keys
        name = self._keys.get("general.architecture")
        if not isinstance(name, str) or name not in ARCHITECTURES:
            self.refuse(f"architecture {name!r} is not read: expected one of {', '.join(sorted(ARCHITECTURES))}")
        self.architecture = name
        self.traits: Architecture = ARCHITECTURES[name]

    def refuse(self, text: str) -> NoReturn:
        """Raise the error that names the file."""
        message = f"{self.path}: {text}"
        raise SpecError(message)

    def text(self, name: str) -> str:
        """Give a general text; empty where the file has none."""
        value = self._keys.get(f"general.{name}", "")
        return value if isinstance(value, str) else ""

    def raw(self, name: str) -> Any:  # noqa: ANN401 - whatever the file holds
        """Give the value of a key of the architecture; None where it is not there."""
        return self._keys.get(f"{self.architecture}.{name}")

    def has(self, name: str) -> bool:
        """Tell whether the file has the key."""
        return self.raw(name) is not None

    @property
    def parallel(self) -> bool | None:
        """Whether attention and feed-forward run side by side; None is told by a missing norm."""
        value = self.raw("use_parallel_residual")
        return value if isinstance(value, bool) else self.traits.parallel

    def count(self, name: str, layer: int | None = None, default: int | None = None, least: int = 1) -> int:
        """Take a count; from a list with one value a layer, that layer's."""
        value = self.raw(name)
        if value is None:
            value = default
        if value is None:
            self.refuse(f"the key `{self.architecture}.{name}` is missing")
        if isinstance(value, tuple) and layer is not None and layer < len(value):
            value = value[layer]
        if type(value) is not int or not least <= value <= _LARGEST_COUNT:
            self.refuse(f"`{self.architecture}.{name}` = {str(value)[:60]}: a count of at least {least} was expected")
        return value
