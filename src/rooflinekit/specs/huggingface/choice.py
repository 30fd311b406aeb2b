"""Which family a file is of: by the name of its type or class, or as the user says; never by a guess from its keys."""

import difflib
from collections.abc import Collection, Iterator, Sequence
from typing import NoReturn

from rooflinekit.errors import SpecError
from rooflinekit.specs.huggingface.config import Config, listed
from rooflinekit.specs.huggingface.families import FAMILIES, bare, family_name, unsupported

_TYPE = "model_type"
_MOST_SUGGESTED = 3
#: Keys that few families have, the rarest first, and the family that they hint at: an advice in errors, nothing more.
_HINTS = {
    "index_topk": "deepseek_v32",
    "kv_lora_rank": "deepseek_v3",
    "altup_num_inputs": "gemma3n",
    "hidden_size_per_layer_input": "gemma4",
    "attn_logit_softcapping": "gemma2",
    "final_logit_softcapping": "gemma2",
    "query_pre_attn_scalar": "gemma3",
    "linear_num_key_heads": "qwen3_next",
    "hybrid_override_pattern": "nemotron_h",
    "n_routed_experts": "deepseek",
    "moe_intermediate_size": "qwen3_moe",
    "num_local_experts": "mixtral",
    "no_rope_layers": "smollm3",
    "n_embd": "gpt2",
}
_PLAIN_HINTS = {"sliding_window": "mistral", "num_key_value_heads": "llama", "num_attention_heads": "llama"}


def choose_family(outer: Config, inner: Config, assumed: Collection[str]) -> str:
    """Tell the family: by the user's word, the language model's own type, then the file's, then the class."""
    told = family_told(assumed)
    _refuse_two(outer, assumed)
    types = [told] if told else [inner.text(_TYPE), outer.text(_TYPE)]
    classes = classes_of(outer, inner)
    _refuse_unsupported(outer, [*reversed(types), *classes])
    if _TYPE in assumed or f"{_TYPE}=" in assumed:
        _refuse_bare(outer, inner, types)
    stated = next((name for name in types if name), "")
    known = [found for found in map(family_name, types if stated else classes) if found]
    if stated and inner is not outer and family_name(types[0] or stated) is None:
        known = []
    return known[0] if known else _unknown(outer, inner, stated)


def family_told(assumed: Collection[str]) -> str:
    """Give the family that the user names, `model_type=NAME`; empty where none is named."""
    return next((entry.partition("=")[2] for entry in assumed if entry.startswith(f"{_TYPE}=")), "")


def told_note(outer: Config, inner: Config, assumed: Collection[str], name: str) -> tuple[str, ...]:
    """Say in a note that the family is the user's word, and what the file calls itself."""
    if not family_told(assumed):
        return ()
    stated = inner.text(_TYPE) or outer.text(_TYPE)
    file = f"the file's `{_TYPE}` is {stated!r}" if stated else f"the file has no `{_TYPE}`"
    return (f"read as the family `{name}`, which the user assumed: {file}",)


def classes_of(outer: Config, inner: Config) -> list[str]:
    """List the classes that the file names, the language model's first, each once."""
    found = [str(name) for config in (inner, outer) for name in config.listing("architectures") or ()]
    return list(dict.fromkeys(found))


# ---- refusals


def _refuse_unsupported(outer: Config, names: Sequence[str]) -> None:
    for name in names:
        found = unsupported(name)
        if found is not None:
            message = (
                f"{outer.where}: {found[0]} (`{name}`) is not supported: {found[1]} not modelled yet. "
                "Give its parameters and KV shape as a `summary` instead"
            )
            raise SpecError(message)


def _refuse_two(outer: Config, assumed: Collection[str]) -> None:
    told = sorted(entry for entry in assumed if entry.startswith(f"{_TYPE}="))
    if len(told) > 1:
        message = f"{outer.where}: assume: {' and '.join(told)} name several families: expected one"
        raise SpecError(message)


def _refuse_bare(outer: Config, inner: Config, types: Sequence[str]) -> NoReturn:
    _refuse_no_model(outer)
    near = _suggested(outer, inner, next(filter(None, types), ""))
    _fail(outer, f'assume=["{_TYPE}"] names no family, and none is guessed', near)


def _unknown(outer: Config, inner: Config, stated: str) -> NoReturn:
    """Say what the file calls itself, and which families are near."""
    _refuse_no_model(outer)
    classes = classes_of(outer, inner)
    near = _suggested(outer, inner, stated)
    if stated:
        _fail(outer, f"{_nameless(outer, inner)}`{_TYPE}` = {stated!r} is not known", near)
    if classes:
        _fail(outer, f"no `{_TYPE}`, and `architectures` = {', '.join(classes)} is not known", near)
    _fail(outer, f"has neither `{_TYPE}` nor `architectures`, which name the family", near, listing=False)


def _nameless(outer: Config, inner: Config) -> str:
    """Say where the language model itself has no type, so that the file's is looked at."""
    there = inner is not outer and not inner.text(_TYPE)
    return f"`{inner.prefix.rstrip('.')}` has no `{_TYPE}`, and the file's " if there else ""


def _refuse_no_model(outer: Config) -> None:
    """Name the adapter_config.json of a LoRA for what it is, and an empty file."""
    if not outer.data:
        message = (
            f"{outer.where}: holds no keys: expected those of a config.json, `{_TYPE}` or `architectures` among them"
        )
        raise SpecError(message)
    kind, base = outer.data.get("peft_type"), outer.data.get("base_model_name_or_path")
    if kind or base:
        whose = f" of {base}" if base else ""
        message = (
            f"{outer.where}: describes an adapter ({kind or 'PEFT'}){whose}, no model: "
            "expected the config.json of its base model"
        )
        raise SpecError(message)


def _fail(outer: Config, fault: str, near: Sequence[str], *, listing: bool = True) -> NoReturn:
    nearest = f": the nearest known {'is' if len(near) == 1 else 'are'} {listed(near)}" if near else ""
    every = f": known are {', '.join(sorted(FAMILIES))}" if listing and not near else ""
    example = f"{_TYPE}={near[0] if near else 'NAME'}"
    message = (
        f"{outer.where}: {fault}{nearest}{every}. If its layers are those of a known family, name it: "
        f'assume=["{example}"] (`--assume {example}`)'
    )
    raise SpecError(message)


# ---- what is near


def _suggested(outer: Config, inner: Config, stated: str) -> list[str]:
    """List the nearest families: by class, by rare keys, by name; by common keys where nothing else is near."""
    classes = [found for found in map(family_name, classes_of(outer, inner)) if found]
    found = [*classes, *_by_keys(inner, _HINTS), *_by_name(stated)] or _by_keys(inner, _PLAIN_HINTS)
    return list(dict.fromkeys(found))[:_MOST_SUGGESTED]


def _by_keys(inner: Config, hints: dict[str, str]) -> list[str]:
    """Give the family of the first key that is there and holds something."""
    return [name for key, name in hints.items() if inner.data.get(key)][:1]


def _by_name(stated: str) -> Iterator[str]:
    """Yield the family of the likest name, and the longest whose name is part of this one."""
    if not stated:
        return
    yield from filter(None, [family_name(stated)])
    yield from difflib.get_close_matches(stated.lower(), FAMILIES, n=1, cutoff=0.5)
    inside = [name for name in FAMILIES if bare(name) and bare(name) in bare(stated)]
    yield from sorted(inside, key=len, reverse=True)[:1]
