"""What a name of `weights=` puts into which format: llama.cpp's file types, MLX's and MLC's checkpoints, one format."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rooflinekit.specs.mixers import GroupedQueryAttention
from rooflinekit.specs.model import Layer, Model
from rooflinekit.specs.parameters import layer_products
from rooflinekit.specs.precision import PLAIN, WEIGHT_FORMATS, is_weight_format, one_of
from rooflinekit.specs.quantisation import PLAIN_FORMAT, Quantisation, Rule

_LLAMA_CPP = "ggml-org/llama.cpp src/llama-quant.cpp (llama_tensor_get_type_impl) @ 007dbbf3fd17"
_MLX = "ml-explore/mlx-lm mlx_lm/utils.py (quantize_model): every linear layer and the embedding"
_MLC = "mlc-ai/mlc-llm python/mlc_llm/quantization/group_quantization.py @ 01ced331a9e1: embedding and output layer too"


class Place(NamedTuple):
    """One matrix among those of its kind: its number, how many there are, and what of the model llama.cpp looks at."""

    number: int
    total: int
    queries_per_kv_head: int
    experts: int
    layers: int
    routed: bool


class Other(NamedTuple):
    """Matrices of a part (``v``, ``k``, ``o``, ``down``; all if empty) that take another format where `where` says."""

    part: str
    format: str
    where: Callable[[Place], bool]


class Recipe(NamedTuple):
    """Formats by part of the model; of `others` the first that fits counts. A tied table takes `head`."""

    default: str
    head: str = PLAIN_FORMAT
    embedding: str = PLAIN_FORMAT
    others: tuple[Other, ...] = ()
    source: str = ""


# ---- which layers llama.cpp gives more bits


def _all(_: Place) -> bool:
    return True


def _half(place: Place) -> bool:
    """Tell the first and last eighth, and every third layer between them."""
    number, eighth, last = place.number, place.total // 8, 7 * place.total // 8
    return number < eighth or number >= last or (number - eighth) % 3 == 2  # noqa: PLR2004 - llama.cpp's pattern


def _first(count: int) -> Callable[[Place], bool]:
    return lambda place: place.number < count


def _part_of_layers(divisor: int) -> Callable[[Place], bool]:
    return lambda place: place.number < place.total // divisor


def _shared_v(place: Place) -> bool:
    return place.queries_per_kv_head >= 4  # noqa: PLR2004 - from there on V is small enough to be given more bits


def _seventy(place: Place) -> bool:
    """Tell what llama.cpp calls a 70B: Llama and Qwen2 of 80 layers, whose K/V heads serve several query heads."""
    return place.layers == 80 and place.queries_per_kv_head > 1  # noqa: PLR2004


def _eight(place: Place) -> bool:
    return place.experts == 8  # noqa: PLR2004 - Mixtral, the one mixture that file types were tuned on


def _not_eight(place: Place) -> bool:
    return not _eight(place)


def _not_routed(place: Place) -> bool:
    return not place.routed


_EIGHT = (Other("v", "q8_0", _eight), Other("k", "q8_0", _eight))
_EIGHT_O = Other("o", "q5_k", _eight)


def _file(default: str, *others: Other, head: str = "q6_k") -> Recipe:
    return Recipe(default, head, default, (*_EIGHT, *others), _LLAMA_CPP)


def _pure(name: str, head: str) -> Recipe:
    return Recipe(name, head, name, (), f"{_LLAMA_CPP}; --pure but for the output layer")


# fmt: off
#: File types as they are written without an importance matrix; with one, a few of the first `down` differ.
_FILES = {
    "q8_0":   _file("q8_0", head="q8_0"),
    "q6_k":   _file("q6_k"),
    "q5_k_m": _file("q5_k", Other("v", "q6_k", _half), Other("down", "q6_k", _half)),
    "q5_k_s": _file("q5_k"),
    "q4_k_m": _file("q4_k", _EIGHT_O, Other("v", "q6_k", _half), Other("v", "q5_k", _seventy),
                    Other("down", "q6_k", _half)),
    "q4_k_s": _file("q4_k", _EIGHT_O, Other("v", "q5_k", _first(4)), Other("v", "q5_k", _seventy),
                    Other("down", "q5_k", _part_of_layers(8))),
    "q3_k_l": _file("q3_k", Other("v", "q5_k", _all), Other("down", "q5_k", _all), Other("o", "q5_k", _not_eight)),
    "q3_k_m": _file("q3_k", _EIGHT_O, Other("v", "q5_k", _first(2)), Other("v", "q5_k", _seventy),
                    Other("v", "q4_k", _all), Other("down", "q5_k", _part_of_layers(16)), Other("down", "q4_k", _all),
                    Other("o", "q4_k", _all)),
    "q3_k_s": _file("q3_k", _EIGHT_O, Other("v", "q5_k", _seventy)),
    "q2_k":   _file("q2_k", _EIGHT_O, Other("v", "q5_k", _seventy), Other("v", "q4_k", _shared_v),
                    Other("v", "q3_k", _all), Other("down", "q3_k", _all), Other("o", "q3_k", _all)),
    "q2_k_s": _file("q2_k", Other("v", "q5_k", _seventy), Other("v", "q4_k", _shared_v),
                    Other("down", "q4_k", _part_of_layers(8))),
    "q5_1":   _file("q5_1"),
    "q5_0":   _file("q5_0"),
    "q4_1":   _file("q4_1"),
    "q4_0":   _file("q4_0"),
    "q1_0":   _file("q1_0"),
    "iq4_nl": _file("iq4_nl", _EIGHT_O, Other("v", "q5_k", _shared_v), Other("down", "q5_k", _part_of_layers(8))),
    "iq4_xs": _file("iq4_xs", _EIGHT_O, Other("v", "q5_k", _shared_v), Other("down", "q5_k", _part_of_layers(8))),
    "mxfp4_moe": Recipe("mxfp4", "q8_0", "q8_0", (Other("", "q8_0", _not_routed),), _LLAMA_CPP),
}
# fmt: on
#: Formats in blocks of 256, each with the one in blocks of 32 that takes the rows which 256 does not divide.
_NARROWER = {
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("q2_k", "q3_k", "tq1_0", "tq2_0"), "q4_0"),
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
}
_OF_32 = {*_NARROWER.values(), "q4_1", "q8_0"}
_LOW_BIT = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs")
_PURE = {name: _pure(name, "q5_k" if name in _LOW_BIT else "q6_k") for name in _NARROWER if name not in _FILES}
#: Name of `weights=` -> what it holds, beside the formats themselves, which leave embedding and output layer plain.
RECIPES: Mapping[str, Recipe] = {
    **_FILES,
    **_PURE,
    "f16": Recipe("fp16", source=_LLAMA_CPP),
    "mlc-q4f16": Recipe("int4-g32", "int4-g32", "int4-g32", (), _MLC),
}


def recipe_of(name: str) -> Recipe:
    """Look up what a name of `weights=` means.

    Names of file types (``q4_k_m``, ``q8_0``, ``q2_k``) mean llama.cpp's mixture without an importance matrix; other
    GGUF formats (``q4_k``) mean all matrices in it and the output layer as llama.cpp writes it. Not followed are the
    exceptions for Falcon, for matrices that a file holds merged (Phi-3's Q, K and V) or splits otherwise (latent
    attention, Gated DeltaNet), and Gemma's per-layer tables. AWQ, GPTQ, FP8 and INT8 leave both tables plain.

    >>> recipe_of("q4_k_m").head, recipe_of("mlx-6bit").embedding, recipe_of("int4").head
    ('q6_k', 'mlx-6bit', 'plain')
    """
    if is_weight_format(name) and name not in RECIPES:
        return Recipe(name, name, name, (), _MLX) if name.startswith("mlx-") else Recipe(name)
    return RECIPES[one_of("weights", name, dict.fromkeys((*WEIGHT_FORMATS, *RECIPES)))]


def write_scheme(recipe: Recipe, model: Model) -> Quantisation | None:
    """Write a recipe out for a model, matrix by matrix; None where all of it is plain."""
    if recipe.default in PLAIN:
        return None
    hidden = model.hidden_size or 0
    return Quantisation(
        default=recipe.default,
        rules=tuple(_rules(_formats(recipe, model), recipe.default)),
        head=fitting(recipe.head, hidden),
        embedding=fitting(recipe.head if model.tied_embeddings else recipe.embedding, hidden),
    )


def fitting(form: str, width: int) -> str:
    """Give the format that rows of this width take: no block spans two rows.

    >>> fitting("q4_k", 4096), fitting("q4_k", 896), fitting("mlx-4bit", 80)
    ('q4_k', 'q5_0', 'plain')
    """
    while width % _block(form):
        form = _NARROWER.get(form, PLAIN_FORMAT)
    return form


def _block(form: str) -> int:
    if form.startswith("mlx-"):
        return int(form.partition("-g")[2] or 64)
    return 256 if form in _NARROWER else 32 if form in _OF_32 else 1


# ---- matrix by matrix


def _formats(recipe: Recipe, model: Model) -> dict[str, dict[int, str]]:
    """Give the format of every matrix, by path and layer."""
    found: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for layer, path, width, place in _places(model):
        part = _part(path)
        others = (other.format for other in recipe.others if other.part in ("", part) and other.where(place))
        found[path][layer] = fitting(next(others, recipe.default), width)
    return found


def _places(model: Model) -> Iterator[tuple[int, str, int, Place]]:
    """Yield layer, path, row width and place of each matrix, in the order in which llama.cpp numbers them.

    V is numbered among the layers that have one. So is ``down``, but by layer in a mixture, and out of all layers.
    """
    runs = [run for run in model.layer_runs for _ in range(run.times)]
    experts, queries = max((run.feedforward.routed[0] for run in runs), default=0), _queries_per_kv_head(model)
    matrices = [tuple(_matrices(model, run)) for run in runs]
    counts = Counter(_part(path) for held in matrices for path, _, _ in held)
    numbers: Counter[str] = Counter()
    for layer, held in enumerate(matrices):
        for path, width, routed in held:
            part = _part(path)
            number = layer if part == "down" and experts else numbers[part]
            total = len(runs) if part == "down" else counts[part]
            yield layer, path, width, Place(number, total, queries, experts, len(runs), routed)
            numbers[part] += 1


def _matrices(model: Model, run: Layer) -> Iterator[tuple[str, int, bool]]:
    """Yield path, row width and whether it is a routed expert of a layer's matrices; routers are never quantised."""
    experts = run.feedforward.expert_products(model.hidden_size or 0)
    for shapes, routed in ((layer_products(model, run), False), (experts, True)):
        for shape in shapes:
            for module in () if shape.plain else shape.modules:
                yield module.path, shape.inner, routed


def _queries_per_kv_head(model: Model) -> int:
    """Query heads on one K/V head, in the first layer that attends."""
    mixers = (run.mixer for run in model.layer_runs)
    return next((mixer.heads // mixer.kv_heads for mixer in mixers if isinstance(mixer, GroupedQueryAttention)), 1)


def _part(path: str) -> str:
    """Name the part that exceptions speak of; other matrices have none.

    >>> _part("self_attn.v_proj"), _part("mlp.experts.down_proj"), _part("mlp.up_proj")
    ('v', 'down', '')
    """
    block, _, name = path.rpartition(".")
    part = name.removesuffix("_proj")
    return part if (part in ("v", "k", "o") and block == "self_attn") or part == "down" else ""


def _rules(formats: Mapping[str, Mapping[int, str]], default: str) -> Iterator[Rule]:
    """Yield the layers that differ from most, then the matrices whose usual format is not the default."""
    usual = {path: Counter(layers.values()).most_common(1)[0][0] for path, layers in formats.items()}
    for path, layers in formats.items():
        for form in sorted(set(layers.values()) - {usual[path]}):
            numbers = "|".join(str(layer) for layer, held in layers.items() if held == form)
            yield Rule(rf"re:layers\.({numbers})\.{re.escape(path)}$", form)
    yield from (Rule(path, form) for path, form in usual.items() if form != default)
