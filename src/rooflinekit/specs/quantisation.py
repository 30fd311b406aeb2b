"""How a checkpoint is quantised: which matrices are held in which format, and what stays in the model's own dtype."""

import re
from fnmatch import fnmatchcase
from functools import cached_property
from typing import NamedTuple

from rooflinekit.specs.spec import Spec

#: The format of a matrix that stays in the model's own dtype.
PLAIN_FORMAT = "plain"


class Rule(NamedTuple):
    """Matrices whose path matches take `format`; ``plain`` keeps them in the model's own dtype.

    A pattern is a path of dotted names, ``*`` a wildcard; ``re:`` begins a regular expression. A plain name also
    matches a whole part of a path: ``mlp.gate`` matches ``layers.3.mlp.gate`` and everything below it.
    """

    pattern: str
    format: str


class Quantisation(Spec):
    """Rules in order, the first that matches wins; `default` for the rest of the layers' matrices.

    ``head`` and ``embedding`` are the formats of the output layer and the table: plain unless a checkpoint says so.
    """

    method: str = ""
    default: str
    rules: tuple[Rule, ...] = ()
    head: str = PLAIN_FORMAT
    embedding: str = PLAIN_FORMAT
    kv_cache: str | None = None

    def format_of(self, path: str) -> str:
        """Give the format of one matrix by its path, as ``layers.3.mlp.gate_proj``."""
        return self.by_rule(path) or self.default

    def by_rule(self, path: str) -> str | None:
        """Give the format that a rule sets for a matrix, if one does."""
        return next((rule.format for rule in self.rules if matches(rule.pattern, path)), None)

    @cached_property
    def by_layer(self) -> bool:
        """Whether some rule tells layers apart, so that identical layers may differ."""
        return any("layers" in rule.pattern for rule in self.rules)


def matches(pattern: str, path: str) -> bool:
    """Tell whether an exclude pattern of a checkpoint means this matrix.

    >>> matches("re:.*self_attn.*", "layers.0.self_attn.q_proj"), matches("layers.1*", "layers.12.mlp.up_proj")
    (True, True)
    >>> matches("mlp.gate", "layers.0.mlp.gate"), matches("mlp.gate", "layers.0.mlp.gate_proj")
    (True, False)
    """
    if pattern.startswith("re:"):
        return re.match(pattern[3:], path) is not None
    if "*" in pattern:
        return fnmatchcase(path, pattern) or fnmatchcase(path, f"*.{pattern}")
    return f".{pattern}." in f".{path}."
