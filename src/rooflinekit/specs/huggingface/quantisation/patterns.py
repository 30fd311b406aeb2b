"""The module patterns of quantised checkpoints: plain paths, wildcards, regular expressions; most name one layer."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import NamedTuple

from rooflinekit.specs.huggingface.config import Config

#: What stands before the layers of a language model.
_ROOTS = re.compile(
    r"^(\*\.)?((model|language_model|backbone|transformer|decoder|llm|text_model)\.)*(?=(layers|blocks|h)\b)"
)
_TOWERS = re.compile(r"vision|visual|audio|mtp|\bvit\b|projector|patch|nextn")
_LAYER = re.compile(r"^(?:layers|blocks|h)\.(?P<index>\d+)(?P<open>\*?)(?=$|\.)")
_FULL_NAMES = ("model.", "language_model.model.", "model.language_model.")


class Name(NamedTuple):
    """A matrix by the names that checkpoints may give it, below its layer."""

    layer: int
    names: tuple[str, ...]

    def at(self, layer: int) -> list[str]:
        """Give the names in a layer."""
        return [f"layers.{layer}.{name}" for name in self.names]


class Patterns:
    """Patterns of one kind, sorted by the layer that they name."""

    def __init__(self, entries: Iterable[str], config: Config) -> None:
        """Sort the patterns; those of vision towers and prediction modules are left out."""
        self._general: list[str] = []
        self._by_layer: dict[int, list[str]] = {}
        self._open: list[tuple[str, str]] = []
        self._expressions: list[re.Pattern[str]] = []
        for entry in entries:
            self._add(entry, config)
        self.by_number = any(re.search(r"\d", re.sub(r"\\d", "", one.pattern)) for one in self._expressions)

    def _add(self, entry: str, config: Config) -> None:
        if entry.startswith("re:"):
            self._expressions.append(_compile(entry, config))
            return
        if _TOWERS.search(entry):
            return
        path = _ROOTS.sub("", entry)
        found = _LAYER.match(path)
        if found is None:
            self._general.append(path)
        elif found["open"]:  # layers.1* also means layers 10 to 19
            self._open.append((found["index"], f"layers.0{path[found.end() - 1 :]}"))
        else:
            self._by_layer.setdefault(int(found["index"]), []).append(f"layers.0{path[found.end() :]}")

    def local(self, layer: int) -> tuple[str, ...]:
        """Give the patterns that name this layer, as if it were layer 0: equal for layers that are treated alike."""
        opened = [path for digits, path in self._open if str(layer).startswith(digits)]
        return tuple(sorted((*self._by_layer.get(layer, ()), *opened)))

    def match(self, name: Name) -> bool:
        """Tell whether one of them means this matrix."""
        names = name.at(0)
        if any(means(pattern, names) for pattern in (*self.local(name.layer), *self._general)):
            return True
        full = [f"{root}{one}" for one in name.at(name.layer) for root in _FULL_NAMES]
        return any(expression.match(one) for expression in self._expressions for one in full)

    def match_top(self, *names: str) -> bool:
        """Tell whether one of them means a matrix outside the layers: the output layer, the table."""
        listed = [*names, *(f"{root}{name}" for name in names for root in _FULL_NAMES)]
        if any(means(pattern, listed) for pattern in self._general):
            return True
        return any(expression.match(one) for expression in self._expressions for one in listed)


def means(pattern: str, names: Sequence[str]) -> bool:
    """Tell whether a plain path or wildcard means one of the names, or what is above it.

    >>> means("mlp.gate", ["layers.0.mlp.gate"]), means("mlp.gate", ["layers.0.mlp.gate_proj"])
    (True, False)
    >>> means("layers.*.self_attn", ["layers.0.self_attn.q_proj"]), means("layers.0.mlp*", ["layers.0.mlp.up_proj"])
    (True, True)
    """
    if not any(sign in pattern for sign in "*?["):
        return any(f".{pattern}." in f".{name}." for name in names)
    inner = translate(pattern).removeprefix("(?s:").removesuffix(")\\z").removesuffix(")\\Z")
    expression = re.compile(rf"(?s:(?:.*\.)?{inner}(?:\..*)?)")
    return any(expression.fullmatch(name) for name in names)


def _compile(entry: str, config: Config) -> re.Pattern[str]:
    try:
        return re.compile(entry.removeprefix("re:"))
    except re.error:
        config.refuse("ignore", entry, "a regular expression after `re:`")
