"""From the mapping of a config.json to a model: which family it is of, its layers, and what was left unexplained."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, NoReturn

from rooflinekit.errors import SpecError
from rooflinekit.specs.huggingface import keys
from rooflinekit.specs.huggingface.config import Config, listed
from rooflinekit.specs.huggingface.families import FAMILIES, family_name, unsupported
from rooflinekit.specs.huggingface.families.blocks import context_of
from rooflinekit.specs.huggingface.families.family import Family, Half
from rooflinekit.specs.huggingface.quantisation import read_quantisation
from rooflinekit.specs.model import Model
from rooflinekit.specs.yamlfile import check

#: More layers than any model has: a larger figure is refused before it is built.
MOST_LAYERS = 2000
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
        Keys that cannot change a count, in the reader's own judgement: they are not read. ``"model_type"`` takes the
        family from the class or the keys, ``"model_type=llama"`` names it, ``"quantization_config"`` reads the model
        as if it were not quantised.
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
    name = _family_name(outer, inner, assumed)
    facts = _facts(inner, name)
    named = naming or Naming(*_named(where))
    facts = {**facts, "id": named.id, "name": named.name, "family": name, "hub_ids": named.hub_ids}
    facts["notes"] = (*facts.get("notes", ()), *_towers(outer, inner), *_assumed(assumed))
    model = check(Model, facts, where)
    scheme = read_quantisation(outer, inner, model, FAMILIES[name].modules)
    _explain(outer, inner, assumed)
    return model if scheme is None else check(Model, {**facts, "quantisation": scheme}, where)


def _halves(config: Mapping[str, Any], where: str, assumed: Collection[str]) -> tuple[Config, Config]:
    """Give the whole file, and the mapping in it that holds the language model: often the same."""
    kept = {str(key): value for key, value in config.items() if key not in assumed or key == "model_type"}
    outer = Config(kept, where)
    nested = next((key for key in keys.NESTED if isinstance(kept.get(key), Mapping)), None)
    if nested is None:
        return outer, outer
    inner = outer.part(nested)
    for key in assumed:
        inner.data.pop(key.removeprefix(inner.prefix), None)
    return outer, inner


# ---- which family


def _family_name(outer: Config, inner: Config, assumed: Collection[str]) -> str:
    """Tell the family: by the language model's own type, then the file's, then the class."""
    told = next((entry.partition("=")[2] for entry in assumed if entry.startswith("model_type=")), "")
    types = [told] if told else [inner.text("model_type"), outer.text("model_type")]
    classes = [str(name) for config in (inner, outer) for name in config.listing("architectures") or ()]
    _refuse_unsupported(outer, [*reversed(types), *classes])
    stated = next((name for name in types if name), "")
    known = [found for found in map(family_name, types if stated else classes) if found]
    if stated and inner is not outer and family_name(types[0] or stated) is None:
        known = []
    if not known and "model_type" in assumed:
        known = [found for found in map(family_name, classes) if found] or _by_keys(inner)
    return known[0] if known else _unknown(outer, stated or ", ".join(classes))


def _refuse_unsupported(outer: Config, names: Sequence[str]) -> None:
    for name in names:
        found = unsupported(name)
        if found is not None:
            message = (
                f"{outer.where}: {found[0]} (`{name}`) is not supported: {found[1]} not modelled yet. "
                "Give its parameters and KV shape as a `summary` instead"
            )
            raise SpecError(message)


def _by_keys(inner: Config) -> list[str]:
    """Guess the family from the figures, for a type that the user assumes: keys left unread refuse it afterwards."""
    data = inner.data
    if data.get("kv_lora_rank"):
        return ["deepseek_v32" if data.get("index_topk") else "deepseek_v3"]
    if any(data.get(key) for key in keys.EXPERTS):
        return [
            "deepseek"
            if data.get("n_routed_experts")
            else "qwen3_moe"
            if data.get("moe_intermediate_size")
            else "mixtral"
        ]
    return ["mistral" if data.get("sliding_window") else "llama"]


def _unknown(outer: Config, stated: str) -> NoReturn:
    near = difflib.get_close_matches(stated.lower(), FAMILIES, n=1, cutoff=0.5)
    nearest = f"the nearest known is `{near[0]}`" if near else f"known are {', '.join(sorted(FAMILIES))}"
    message = (
        f"{outer.where}: `model_type` = {stated!r} is not known: {nearest}. If its layers are of a known shape, "
        'go on with assume=["model_type"] (`--assume model_type`, or `--assume model_type=NAME`)'
    )
    raise SpecError(message)


# ---- what the family's reader finds


def _facts(config: Config, name: str) -> dict[str, Any]:
    family = FAMILIES[name]
    config.skip(*family.skipped)
    layers = _layer_count(config, name)
    mixers, feedforwards = family.mixers(config, layers, family), family.feedforwards(config, layers, family)
    facts = {
        "dtype": _dtype(config),
        "max_context_tokens": context_of(config),
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


# ---- what is left


def _explain(outer: Config, inner: Config, assumed: Collection[str]) -> None:
    """Refuse the file where keys are left that may change a count."""
    outer.skip("tie_word_embeddings", *keys.DTYPE)
    found = [f"{part.prefix}{key}" for part in (outer, *outer.parts) for key in keys.suspicious(part.unread)]
    left = [name for name in found if name not in assumed]
    if left:
        names = ", ".join(left)
        message = (
            f"{inner.where}: {listed(left)} may change a count, and the reader of this family does not explain "
            f"{'it' if len(left) == 1 else 'them'}: expected none such. If they change nothing, go on with "
            f"assume=[{', '.join(map(repr, left))}] (`--assume {names.split(',', maxsplit=1)[0]}`)"
        )
        raise SpecError(message)


def _towers(outer: Config, inner: Config) -> tuple[str, ...]:
    towers = [key for key in ("vision_config", "audio_config") if outer.data.get(key)]
    if not towers and inner is outer:
        return ()
    return ("the language model only: vision and audio towers are not described",)


def _assumed(assumed: Collection[str]) -> tuple[str, ...]:
    return (f"read under the assumption that these change no count: {', '.join(sorted(assumed))}",) if assumed else ()


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
