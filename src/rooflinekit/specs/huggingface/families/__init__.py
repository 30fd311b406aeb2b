"""The registry: model type -> family. A new family is one row; a new kind of layer is one function in a file here."""

import re

from rooflinekit.specs.huggingface.families import dense, gemma, hybrid, latent, mixtures, nemotron
from rooflinekit.specs.huggingface.families.family import Family

FAMILIES: dict[str, Family] = {
    **dense.FAMILIES,
    **gemma.FAMILIES,
    **mixtures.FAMILIES,
    **latent.FAMILIES,
    **hybrid.FAMILIES,
    **nemotron.FAMILIES,
}
#: Other names of a family: classes whose name is not the model type's, and the text halves of multimodal models.
_ALIASES = {
    "decilm": "nemotron-nas",
    "qwenlmhead": "qwen",
    "gpt2lmhead": "gpt2",
    "lmhead": "gpt2",
    "mistral3": "ministral3",
    "qwen3vl": "qwen3",
    "qwen3vlmoe": "qwen3_moe",
    "qwen2vl": "qwen2",
    "qwen25vl": "qwen2",
    "kimik25": "kimi_k2",
    "rwforcausallm": "falcon",
    "refinedweb": "falcon",
    "refinedwebmodel": "falcon",
    "minimaxtext01": "minimax_text_01",
}
#: Families that are named but not modelled: the beginning of their names, and why.
_UNSUPPORTED = {
    "deepseekv4": ("DeepSeek-V4", "compressed attention and hyper-connections"),
    "deepseekref": ("DeepSeek-V4", "compressed attention and hyper-connections"),
    "kimilinear": ("Kimi-Linear", "Kimi delta attention"),
    "kimik3": ("Kimi-K3", "Kimi delta attention"),
    "minimaxm3": ("MiniMax-M3", "block-sparse attention"),
    "step3p": ("Step-3.7", "its mixed layers"),
    "step3": ("Step-3", "multi-matrix factorisation attention"),
}
_BARE = {_name.replace("_", "").replace("-", ""): _name for _name in FAMILIES}
_CLASS_ENDING = re.compile(r"(for(causallm|conditionalgeneration|imagetexttotext)|model|text)$")


def bare(name: str) -> str:
    """Give the name of a model type or class without what does not tell families apart.

    >>> bare("Qwen3MoeForCausalLM"), bare("gemma3_text"), bare("deepseek_v3")
    ('qwen3moe', 'gemma3', 'deepseekv3')
    """
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    while _CLASS_ENDING.search(plain):
        plain = _CLASS_ENDING.sub("", plain)
    return plain


def family_name(name: str) -> str | None:
    """Give the registry's name of a family by model type or class, or None."""
    if name in FAMILIES:
        return name
    plain = bare(name)
    return _BARE.get(plain) or _ALIASES.get(plain)


def unsupported(name: str) -> tuple[str, str] | None:
    """Give the public name of a family that is not modelled, and what is missing."""
    plain = bare(name)
    return next((told for beginning, told in _UNSUPPORTED.items() if plain.startswith(beginning)), None)
