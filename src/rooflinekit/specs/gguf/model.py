"""From the header of a GGUF file to a model whose parameters are those of its tensors, to the last one."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rooflinekit.specs.feedforwards import FeedForward, FeedForwardBase
from rooflinekit.specs.gguf.feedforwards import read_feedforward
from rooflinekit.specs.gguf.formats import Held, format_name, held_in, read_formats
from rooflinekit.specs.gguf.header import Header, Tensor
from rooflinekit.specs.gguf.keys import Keys
from rooflinekit.specs.gguf.layer import Layer, Part, Parts
from rooflinekit.specs.gguf.mixers import read_mixer
from rooflinekit.specs.gguf.parts import read_parts
from rooflinekit.specs.mixers import GroupedQueryAttention, Mixer, MixerBase
from rooflinekit.specs.model import Model
from rooflinekit.specs.precision import WEIGHT_FORMATS
from rooflinekit.specs.yamlfile import check

_LAYER_TENSOR = re.compile(r"blk\.(\d{1,6})\.(.+)")
#: No weights of the model: tables of angles, masks, scales of tensors, and the bias by which experts are selected
#: (it steers the router's choice and is no trained weight: published counts leave it out).
_ASIDE = re.compile(
    r"rope_freqs\.weight|rope_factors_(long|short)\.weight|blk\.\d+\.(rope_freqs\.weight|attn_rot_embd\.weight|"
    r"rope_factors_(long|short)\.weight|exp_probs_b(\.bias)?|.+\.(input_)?scale)|.+\.input_scale"
)
#: Tensors that like layers may have or not: sinks in windowed layers alone, an indexer in every fourth.
_NOT_IN_ALL = ("attn_sinks", "indexer.")
_AHEAD = ("nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm")
_MOST_NAMED = 4
_LABELS = {"gqa": "full", "gated_deltanet": "deltanet", "shortconv": "conv"}


BlockT = TypeVar("BlockT", bound=MixerBase | FeedForwardBase)


class Read(NamedTuple):
    """One layer as read."""

    mixer: Mixer
    feedforward: FeedForward
    parts: Parts
    layer: Layer


def load_gguf(path: str | Path) -> Model:
    """
    Read a model from the header of a GGUF file.

    Parameters
    ----------
    path : str or Path
        The file, or any part of a split one (all parts have to be in its folder). No tensor data is read.

    Returns
    -------
    model : Model
        Its parameters equal the sum of the tensors' weights; `quantisation` says which matrix has which format.

    Raises
    ------
    SpecError
        No GGUF file, a damaged one, an architecture that is not read, or tensors that do not fit the keys: they are
        named. Also where the package ``gguf`` is not installed.
    """
    header = read_parts(Path(path).expanduser())
    keys, aside = Keys(header), _aside(header)
    tensors = {tensor.name: tensor for tensor in header.tensors if tensor.name not in aside}
    hidden = keys.count("embedding_length")
    layers = [_read(layer) for layer in _layers(keys, tensors, hidden)]
    claims, data = _tables(keys, tensors, hidden)
    for read in layers:
        claims |= {f"blk.{read.layer.index}.{name}": part for name, part in read.parts.items()}
    _check_claims(keys, tensors, claims)
    body, tail = _parted(keys, layers)
    _check_alike(keys, body)
    data |= _blocks(body, tail) | _formats(keys, body, tensors) | _described(header, keys)
    data["notes"] = (f"the tensors take {header.stored_bytes} bytes", *data["notes"], *_aside_note(aside))
    return _counted(check(Model, data, str(header.path)), keys, tensors)


def _aside(header: Header) -> frozenset[str]:
    """Name the tensors that are no weights, and the split copies of a latent projection that is there whole too."""
    names = {tensor.name for tensor in header.tensors}
    whole = [name.removesuffix("attn_kv_b.weight") for name in names if name.endswith(".attn_kv_b.weight")]
    copies = {f"{layer}{copy}.weight" for layer in whole for copy in ("attn_k_b", "attn_v_b")}
    return frozenset(name for name in names if name in copies or _ASIDE.fullmatch(name))


# ---- layers


def _layers(keys: Keys, tensors: Mapping[str, Tensor], hidden: int) -> list[Layer]:
    """Group the tensors by layer; there have to be as many as the keys say."""
    grouped: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if match := _LAYER_TENSOR.fullmatch(name):
            grouped.setdefault(int(match[1]), {})[match[2]] = tensor
    count = keys.count("block_count")
    if len(grouped) != count or max(grouped) != count - 1:
        keys.refuse(f"`{keys.architecture}.block_count` = {count}, but {len(grouped)} layers have tensors")
    bias = "output_norm.bias" in tensors
    return [Layer(index, grouped[index], keys, hidden, bias) for index in range(count)]


def _read(layer: Layer) -> Read:
    mixer, parts = read_mixer(layer)
    feedforward, others = read_feedforward(layer, alone=mixer.kind == "none")
    return Read(mixer, feedforward, parts | others | _ahead(layer), layer)


def _ahead(layer: Layer) -> Parts:
    """Claim what a layer that predicts ahead has besides: a projection of two hidden sizes, norms, maybe copies."""
    if not layer.has("nextn.eh_proj.weight"):
        return {}
    _, norms = layer.norms(*_AHEAD)
    tables = {name: layer.tensors[name].elements for name in _copies(layer)}
    projection = {"nextn.eh_proj.weight": Part(2 * layer.hidden * layer.hidden)}
    return norms | projection | {name: Part(count) for name, count in tables.items()}


def _copies(layer: Layer) -> list[str]:
    """Name the copies of the tables; the final count has to bear them out."""
    names = ("nextn.embed_tokens.weight", "nextn.shared_head_head.weight")
    return [name for name in names if layer.has(name)]


def _parted(keys: Keys, layers: list[Read]) -> tuple[list[Read], list[Read]]:
    """Part the layers of the model from those that predict ahead, which come last."""
    ahead = keys.count("nextn_predict_layers", None, 0, 0)
    if ahead >= len(layers):
        keys.refuse(f"`{keys.architecture}.nextn_predict_layers` = {ahead} of {len(layers)} layers")
    return layers[: len(layers) - ahead], layers[len(layers) - ahead :]


# ---- tables and norms outside the layers


def _tables(keys: Keys, tensors: Mapping[str, Tensor], hidden: int) -> tuple[Parts, dict[str, Any]]:
    """Read embedding, positions, output layer and norms: what they claim, and what the model says of them."""
    embedding = tensors.get("token_embd.weight")
    if embedding is None or embedding.shape[0] != hidden:
        keys.refuse(f"`token_embd.weight` is missing or not `embedding_length` ({hidden}) wide")
    vocabulary = embedding.elements // hidden
    claims = {"token_embd.weight": Part(hidden * vocabulary)}
    claims |= {"output.weight": Part(hidden * vocabulary)} if "output.weight" in tensors else {}
    claims |= {"output.bias": Part(vocabulary)} if "output.bias" in tensors else {}
    data = {"hidden_size": hidden, "vocabulary": vocabulary, "tied_embeddings": "output.weight" not in tensors}
    data |= {"lm_head_bias": "output.bias" in tensors, "parallel_block": _is_parallel(keys, tensors)}
    positions, places = _positions(keys, tensors, hidden)
    norms, kinds = _norms(keys, tensors, hidden)
    return claims | positions | norms, data | places | kinds


def _is_parallel(keys: Keys, tensors: Mapping[str, Tensor]) -> bool:
    told = keys.parallel
    return "blk.0.ffn_norm.weight" not in tensors if told is None else told


def _positions(keys: Keys, tensors: Mapping[str, Tensor], hidden: int) -> tuple[Parts, dict[str, Any]]:
    table = tensors.get("position_embd.weight")
    if table is None:
        return {}, {"position": keys.traits.position}
    rows = table.elements // hidden
    return {table.name: Part(rows * hidden)}, {"position": "learned", "position_rows": rows}


def _norms(keys: Keys, tensors: Mapping[str, Tensor], hidden: int) -> tuple[Parts, dict[str, Any]]:
    """Read the norms outside the layers: LFM2 gives the final one the name of an embedding's norm."""
    final = "output_norm.weight" in tensors
    embedded = final and "token_embd_norm.weight" in tensors
    names = ["output_norm" if final else "token_embd_norm"] + ["token_embd_norm"] * embedded
    bias = f"{names[0]}.bias" in tensors
    claims = {f"{name}.{end}": Part(hidden) for name in names for end in ("weight", "bias")[: 1 + bias]}
    kind = "layernorm" if bias or keys.has("attention.layer_norm_epsilon") else "rmsnorm"
    return claims, {"norm": {"kind": kind, "bias": bias}, "embedding_norm": embedded}


# ---- checks


def _check_claims(keys: Keys, tensors: Mapping[str, Tensor], claims: Parts) -> None:
    """Compare what the blocks claim with the file, tensor by tensor."""
    missing = [f"`{name}` is missing" for name in claims if name not in tensors]
    unknown = [f"`{name}` is not accounted for" for name in tensors if name not in claims]
    unfit = [
        f"`{name}` holds {tensor.elements} weights, not {claims[name].elements}"
        for name, tensor in tensors.items()
        if name in claims and tensor.elements != claims[name].elements
    ]
    faults = [*unfit, *missing, *unknown]
    if faults:
        more = f" and {len(faults) - _MOST_NAMED} more" if len(faults) > _MOST_NAMED else ""
        keys.refuse(f"tensors do not fit a {keys.architecture}: {', '.join(faults[:_MOST_NAMED])}{more}")


def _check_alike(keys: Keys, body: Iterable[Read]) -> None:
    """Refuse a layer that lacks a norm or a bias of its like: its count would fit, but no engine could run it."""
    first: dict[tuple[str, str], frozenset[str]] = {}
    for read in body:
        names = frozenset(name for name in read.parts if not name.startswith(_NOT_IN_ALL))
        alike = first.setdefault((read.mixer.kind, read.feedforward.kind), names)
        if names != alike:
            name = min(names ^ alike)
            keys.refuse(f"`{name}` is in some layers and not in others of their kind: see blk.{read.layer.index}")


def _counted(model: Model, keys: Keys, tensors: Mapping[str, Tensor]) -> Model:
    """Return the model, whose count has to be the tensors'."""
    counted = model.parameters.total + model.parameters.prediction_module
    stored = sum(tensor.elements for tensor in tensors.values())
    if counted != stored:
        keys.refuse(f"the tensors hold {stored} weights, the {keys.architecture} read from them {counted}")
    return model


# ---- the model's mapping


def _blocks(body: Sequence[Read], tail: Sequence[Read]) -> dict[str, Any]:
    """Name the different blocks and write the layers as runs; layers that predict ahead go apart."""
    mixers = _named([read.mixer for read in (*body, *tail)])
    feedforwards = _named([read.feedforward for read in (*body, *tail)])
    pairs = [(mixers[read.mixer], feedforwards[read.feedforward]) for read in body]
    runs = tuple((*pair, len(tuple(many))) for pair, many in itertools.groupby(pairs))
    data: dict[str, Any] = {"layers": runs}
    for name, blocks in (("mixers", mixers), ("feedforwards", feedforwards)):
        data[name] = tuple(block.model_copy(update={"name": label}) for block, label in blocks.items())
    if tail:
        data["prediction_module"] = _prediction(tail, mixers[tail[0].mixer], feedforwards[tail[0].feedforward])
    return data


def _named(blocks: Sequence[BlockT]) -> dict[BlockT, str]:
    """Give each different block a name: its kind, numbered where several shapes share it."""
    names: dict[BlockT, str] = {}
    taken: Counter[str] = Counter()
    for block in dict.fromkeys(blocks):
        label = _label(block)
        taken[label] += 1
        names[block] = f"{label}-{taken[label]}" if taken[label] > 1 else label
    return names


def _prediction(tail: Sequence[Read], mixer: str, feedforward: str) -> dict[str, Any]:
    layer = tail[0].layer
    norms, _ = layer.norms(*_AHEAD)
    copies = bool(_copies(layer))
    return {"layers": len(tail), "mixer": mixer, "feedforward": feedforward, "norms": norms, "stores_copies": copies}


def _label(block: MixerBase | FeedForwardBase) -> str:
    if isinstance(block, GroupedQueryAttention) and block.window is not None:
        return "chunk" if block.chunked else "window"
    kind = str(type(block).model_fields["kind"].default)
    return _LABELS.get(kind, kind)


def _formats(keys: Keys, body: Iterable[Read], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    held: list[Held] = []
    for read in body:
        held += held_in(read.layer.index, read.parts, read.layer.tensors)
    _check_types(keys, tensors.values())
    embedding = tensors["token_embd.weight"]
    return read_formats(held, tensors.get("output.weight", embedding), embedding)._asdict()


def _check_types(keys: Keys, tensors: Iterable[Tensor]) -> None:
    """Refuse the storage types of a later package gguf, whose bits nobody has told us."""
    unknown = sorted({tensor.type for tensor in tensors if format_name(tensor.type) not in WEIGHT_FORMATS})
    if unknown:
        keys.refuse(f"holds tensors of the type {', '.join(unknown)}, which rooflinekit does not know yet")


def _described(header: Header, keys: Keys) -> dict[str, Any]:
    """Give name, context and source."""
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", header.path.stem)
    return {
        "id": "-".join(re.findall(r"[a-z0-9]+(?:\.[a-z0-9]+)*", stem.lower())) or "gguf",
        "name": keys.text("name") or stem,
        "family": keys.architecture,
        "max_context_tokens": keys.count("context_length", None, 0, 0) or None,
        "sources": {"figures": f"header of {header.path.name}"},
    }


def _aside_note(aside: Iterable[str]) -> tuple[str, ...]:
    kinds = sorted({re.sub(r"^blk\.\d+\.", "", name) for name in aside})
    return (f"not counted as weights: {', '.join(kinds)}",) if kinds else ()
