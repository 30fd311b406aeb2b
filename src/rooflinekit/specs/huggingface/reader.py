"""From the mapping of a config.json to a model: which family it is of, its layers, and what was left unexplained."""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from rooflinekit.specs.huggingface import keys
from rooflinekit.specs.huggingface.assumptions import explain, notes_of, refuse_absent, without_quantisation
from rooflinekit.specs.huggingface.choice import choose_family, told_note
from rooflinekit.specs.huggingface.config import Config
from rooflinekit.specs.huggingface.families import FAMILIES
from rooflinekit.specs.huggingface.families.blocks import context_of
from rooflinekit.specs.huggingface.families.family import Family, Half
from rooflinekit.specs.huggingface.quantisation import read_quantisation, unexplained
from rooflinekit.specs.model import Model
from rooflinekit.specs.yamlfile import check

#: More layers than any model has: a larger figure is refused before it is built.
MOST_LAYERS = 2000
_CLASSIFIER = re.compile(r"For(Sequence|Token)Classification$|ForQuestionAnswering$")
_WITHOUT_HEAD = re.compile(rf"{_CLASSIFIER.pattern}|(?<!LMHead)(?<!Chat)Model$")
_DTYPES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "fp32": "fp32",
    "float": "fp32",
}


class Naming(NamedTuple):
    """What a model read from a file is called."""

    id: str
    name: str
    hub_ids: tuple[str, ...] = ()


def model_from_config(
    config: Mapping[str, Any], where: str, assume: Collection[str] = (), naming: Naming | None = None
) -> Model:
    """
    Read the mapping of a Hugging Face config.json.

    Parameters
    ----------
    config : mapping
        What the file holds.
    where : str
        What errors call it: the path of the file.
    assume : collection of str
        Keys of the file that no reader explains and that change no count, in the user's own judgement.
        ``"model_type=llama"`` names the family, ``"quantization_config"`` reads the model as if it were not quantised.
    naming : Naming, optional
        Id and name; made from `where` when left out.

    Returns
    -------
    model : Model
        Its layers, not its vision or audio towers.

    Raises
    ------
    SpecError
        A figure is missing or impossible, the family is unknown or not modelled, or keys that may change a count
        are explained by nothing: never a silent dense model.

    Examples
    --------
    >>> figures = {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "vocab_size": 128256}
    >>> figures |= {"num_hidden_layers": 16, "num_key_value_heads": 8, "tie_word_embeddings": True}
    >>> figures |= {"model_type": "llama"}
    >>> model_from_config(figures, "Llama-3.2-1B/config.json").parameters.total
    1235814400
    """
    assumed = frozenset((assume,) if isinstance(assume, str) else assume)
    outer, inner = _halves(config, where, assumed)
    name = choose_family(outer, inner, assumed)
    facts = _facts(inner, name)
    named = naming or Naming(*_named(where))
    facts = {**facts, "id": named.id, "name": named.name, "family": name, "hub_ids": named.hub_ids}
    facts["notes"] = (*facts.get("notes", ()), *_towers(outer, inner))
    facts["notes"] += (*told_note(outer, inner, assumed, name), *notes_of(assumed))
    model = check(Model, facts, where)
    facts["notes"] += _headless(outer, inner, model)
    facts["quantisation"] = read_quantisation(outer, inner, model, FAMILIES[name].modules)
    explain(outer, inner, assumed, unexplained(outer, inner))
    return check(Model, facts, where)


def _halves(config: Mapping[str, Any], where: str, assumed: Collection[str]) -> tuple[Config, Config]:
    """Give the whole file, and the mapping in it that holds the language model: often the same."""
    refuse_absent(config, where, assumed)
    outer = Config(without_quantisation(config, assumed), where)
    nested = next((key for key in keys.NESTED if outer.data.get(key) and isinstance(outer.data[key], Mapping)), None)
    if nested is None:
        return outer, outer
    inner = outer.part(nested)
    inner.data = without_quantisation(inner.data, assumed)
    return outer, inner


# ---- what the family's reader finds


def _facts(config: Config, name: str) -> dict[str, Any]:
    family = FAMILIES[name]
    config.skip(*family.skipped)
    layers = _layer_count(config, name)
    mixers, feedforwards = family.mixers(config, layers, family), family.feedforwards(config, layers, family)
    facts = {
        "dtype": _dtype(config),
        "max_context_tokens": context_of(config, family),
        "hidden_size": config.count(*keys.HIDDEN),
        "vocabulary": config.count("vocab_size"),
        "tied_embeddings": _tied(config, family),
        "position": family.position,
        "norm": family.norm,
        "parallel_block": family.parallel,
        "mixers": _used(config, mixers),
        "feedforwards": _used(config, feedforwards),
        "layers": runs(mixers.names, feedforwards.names),
    }
    return {**facts, **_prediction(config, family, feedforwards), **family.extras(config, layers)}


def _layer_count(config: Config, name: str) -> int:
    """Read the number of layers; Nemotron-H may give it as the length of its list alone."""
    listing = config.data.get("hybrid_override_pattern") or config.data.get("layers_block_type")
    default = len(listing) if name == "nemotron_h" and isinstance(listing, str | list) else None
    return config.count(*keys.LAYERS, default=default, most=MOST_LAYERS)


def _used(config: Config, part: Half) -> list[dict[str, Any]]:
    """List the blocks that some layer has, or refuse a kind of layer that the family's reader does not know."""
    known = {block["name"]: block for block in part.blocks}
    for name in dict.fromkeys(part.names):
        if name not in known:
            config.refuse("layer_types", name, f"one of {', '.join(known)}: this family has no other layers")
    return [block for name, block in known.items() if name in part.names]


def runs(mixers: Sequence[str], feedforwards: Sequence[str]) -> list[tuple[str, str, int]]:
    """Give equal layers in a row as one entry with their number.

    >>> runs(["full", "full", "window"], ["dense", "dense", "dense"])
    [('full', 'dense', 2), ('window', 'dense', 1)]
    """
    pairs = zip(mixers, feedforwards, strict=True)
    return [(*pair, len(list(group))) for pair, group in groupby(pairs)]


def _prediction(config: Config, family: Family, feedforwards: Half) -> dict[str, Any]:
    """Read the multi-token prediction module: of the last layer's kind."""
    if family.prediction is None or not config.natural(family.prediction.key):
        return {}
    module = {
        "layers": config.count(family.prediction.key, most=MOST_LAYERS),
        "mixer": family.prediction.mixer,
        "feedforward": feedforwards.names[-1],
        "stores_copies": family.prediction.stores_copies,
    }
    return {"prediction_module": module}


def _tied(config: Config, family: Family) -> bool:
    """Read whether the table is the output layer too: the whole file's word before the language model's."""
    inner = config.flag("tie_word_embeddings", family.tied)
    return inner if config.outer is None else config.outer.flag("tie_word_embeddings", inner)


def _dtype(config: Config) -> str | None:
    """Read the dtype of what is not quantised; it may be missing, or stand in one half of the file only."""
    named = config.text(*keys.DTYPE) or (config.outer.text(*keys.DTYPE) if config.outer else "")
    plain = named.removeprefix("torch.")
    if plain and plain != "auto" and plain not in _DTYPES:
        config.refuse(config.find(*keys.DTYPE)[0], named, f"one of {', '.join(_DTYPES)}")
    return _DTYPES.get(plain)


# ---- notes


def _towers(outer: Config, inner: Config) -> tuple[str, ...]:
    towers = [key for key in ("vision_config", "audio_config") if outer.data.get(key)]
    if not towers and inner is outer:
        return ()
    return ("the language model only: vision and audio towers are not described",)


def _headless(outer: Config, inner: Config, model: Model) -> tuple[str, ...]:
    """Say that an output layer is counted where the file's class has none: a classifier, or the bare layers."""
    classes = [str(name) for name in inner.listing("architectures") or outer.listing("architectures") or ()]
    without = _WITHOUT_HEAD if inner.data.get("architectures") else _CLASSIFIER  # around a part, XModel may have one
    if not classes or not all(without.search(name) for name in classes):
        return ()
    told = f"an output layer is counted that {', '.join(classes)} does not have"
    if model.tied_embeddings:
        return (f"{told}: it is the embedding table, no parameters more",)
    return (f"{told}: {model.parameters.head:,} parameters",)


def _named(where: str) -> tuple[str, str]:
    stem = where.replace("\\", "/").rstrip("/").removesuffix("/config.json").rsplit("/", maxsplit=1)[-1]
    name = stem.removesuffix(".json") or "custom"
    return identifier(name), name


def identifier(name: str) -> str:
    """Make an id of a name: lower-case words joined by dashes or dots.

    >>> identifier("Qwen/Qwen3-8B"), identifier("gemma_4..E2B-")
    ('qwen-qwen3-8b', 'gemma-4.e2b')
    """
    words = "".join(
        letter if (letter.isascii() and letter.isalnum()) or letter == "." else "-" for letter in name.lower()
    )
    parts = [part for part in words.replace(".", "-.").split("-") if part.strip(".")]
    return "-".join(parts).replace("-.", ".").strip(".-") or "custom"
