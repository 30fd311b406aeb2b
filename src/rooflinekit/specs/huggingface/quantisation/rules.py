"""From a checkpoint's patterns to our rules: each matrix of each layer is looked up, the answers are written short."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product as combinations
from typing import Any

from rooflinekit.specs.huggingface.quantisation.patterns import Name
from rooflinekit.specs.huggingface.quantisation.scheme import Scheme
from rooflinekit.specs.model import Layer, Model
from rooflinekit.specs.parameters import layer_products
from rooflinekit.specs.quantisation import PLAIN_FORMAT

#: What checkpoints call the parts of a path.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "self_attn": ("self_attn", "attention", "attn", "mixer"),
    "mlp": ("mlp", "feed_forward", "block_sparse_moe", "ffn", "mixer"),
    "experts": ("experts", "experts.0.gate_proj", "experts.0.up_proj", "experts.0.w1", "experts.gate_up_proj"),
    "shared_experts": ("shared_experts", "shared_expert", "shared_mlp"),
    "gate_proj": ("gate_proj", "gate_up_proj", "w1"),
    "up_proj": ("up_proj", "gate_up_proj", "w3", "fc1"),
    "down_proj": ("down_proj", "w2", "fc2"),
    "q_proj": ("q_proj", "qkv_proj"),
    "k_proj": ("k_proj", "qkv_proj"),
    "v_proj": ("v_proj", "qkv_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_qkvz", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_ba", "in_proj_a"),
    "weights_proj": ("weights_proj",),
}
_RECURRENT: Mapping[str, tuple[str, ...]] = {
    "gated_deltanet": ("linear_attn",),
    "mamba1": ("mamba", "mixer"),
    "mamba2": ("mamba", "mixer"),
    "lightning": ("self_attn",),
    "shortconv": ("conv",),
}
_OTHER = {"self_attn.indexer.weights_proj": ("self_attn.indexers_proj",)}
Formats = dict[str, str]


def names_of(path: str, mixer_kind: str, modules: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Give the names of a matrix below its layer; `modules` are those of a family that differ.

    >>> names_of("mixer.out_proj", "gated_deltanet", {})
    ('linear_attn.out_proj',)
    """
    for own, others in modules.items():
        if path == own or path.startswith(f"{own}."):
            return tuple(f"{other}{path.removeprefix(own)}" for other in others)
    parts = path.split(".")
    choices = [_PARTS.get(part, (part,)) for part in parts]
    if parts[0] == "mixer":
        choices[0] = _RECURRENT.get(mixer_kind, ("mixer",))
    return (*(".".join(choice) for choice in combinations(*choices)), *_OTHER.get(path, ()))


def formats_by_layer(scheme: Scheme, model: Model, modules: Mapping[str, Sequence[str]]) -> list[Formats]:
    """Look up every matrix of every layer; layers that are treated alike are looked up once."""
    seen: dict[tuple[object, ...], Formats] = {}
    found: list[Formats] = []
    for run in model.layer_runs:
        for layer in range(len(found), len(found) + run.times):
            alike = (run.mixer.name, run.feedforward.name, *scheme.likeness(layer))
            if alike not in seen:
                paths = {path: Name(layer, names_of(path, run.mixer.kind, modules)) for path, _ in matrices(model, run)}
                seen[alike] = {path: scheme.format_of(name) for path, name in paths.items()}
            found.append(seen[alike])
    return found


def matrices(model: Model, run: Layer) -> Iterator[tuple[str, int]]:
    """Yield path and weights of each matrix of a layer that a checkpoint may quantise."""
    hidden = model.hidden_size or 0
    for shape in layer_products(model, run):
        for module in () if shape.plain else shape.modules:
            yield module.path, shape.inner * module.columns
    experts = run.feedforward.routed[0] * run.feedforward.expert_matrices(hidden)
    if experts:
        yield "mlp.experts", experts


def quantisation_of(scheme: Scheme, model: Model, modules: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Write a scheme as the fields of our Quantisation."""
    found = formats_by_layer(scheme, model, modules)
    default, usual = _largest(model, found) or scheme.default, _usual_formats(found)
    embedding = scheme.format_of_top(scheme.embedding, "embed_tokens", "wte", "embeddings")
    head = scheme.format_of_top(scheme.head, "lm_head", "head", "output")
    return {
        "method": scheme.method,
        "default": default,
        "rules": [*_odd_layers(found, usual), *_usual(usual, default)],
        "head": embedding if model.tied_embeddings else head,
        "embedding": embedding,
        "kv_cache": scheme.kv_cache,
    }


def _largest(model: Model, found: Sequence[Formats]) -> str | None:
    """Give the format of most weights, plain only where nothing else is: kernels are timed by it."""
    runs = [run for run in model.layer_runs for _ in range(run.times)]
    held: Counter[str] = Counter()
    weights: dict[tuple[str, str], dict[str, int]] = {}
    for run, formats in zip(runs, found, strict=True):
        names = (run.mixer.name, run.feedforward.name)
        if names not in weights:
            weights[names] = dict(matrices(model, run))
        for path, many in weights[names].items():
            held[formats[path]] += many
    quantised = [form for form, _ in held.most_common() if form != PLAIN_FORMAT]
    return quantised[0] if quantised else PLAIN_FORMAT if held else None


def _usual_formats(found: Sequence[Formats]) -> Formats:
    """Give the format that a matrix has in most of its layers; layers that are treated alike are counted together."""
    distinct = {id(formats): formats for formats in found}
    counts: dict[str, Counter[str]] = {}
    for key, layers in Counter(map(id, found)).items():
        for path, form in distinct[key].items():
            counts.setdefault(path, Counter())[form] += layers
    return {path: count.most_common(1)[0][0] for path, count in counts.items()}


def _odd_layers(found: Sequence[Formats], usual: Formats) -> Iterator[tuple[str, str]]:
    """Yield rules for layers that differ from most: the whole layer where it is of one format."""
    for layer, formats in enumerate(found):
        odd = {path: form for path, form in formats.items() if form != usual[path]}
        if odd and len(set(formats.values())) == 1:
            yield f"layers.{layer}", next(iter(formats.values()))
            continue
        for path, form in odd.items():
            yield f"layers.{layer}.{path}", form


def _usual(usual: Formats, default: str) -> Iterator[tuple[str, str]]:
    """Yield rules for matrices that are usually not of the default format, by the widest path of one format."""
    told: set[str] = set()
    for path, form in usual.items():
        wide = next(part for part in _above(path) if len({usual[other] for other in usual if _below(other, part)}) == 1)
        if form != default and wide not in told:
            told.add(wide)
            yield wide, form


def _above(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _below(path: str, part: str) -> bool:
    return path == part or path.startswith(f"{part}.")
