"""What the keys and tensors of a GGUF file leave to the architecture: activation, positions, which layers have windows.

Shapes and counts never come from here. An architecture that is not listed is refused.
"""

from typing import Literal, NamedTuple


class Architecture(NamedTuple):
    """Traits of one ``general.architecture``.

    ``window_period`` n: of n layers in a row all but the last have the window, unless the file lists them; 0 is every
    layer, None is not known. ``chunk`` is the length of a chunked window. ``nope`` names the layers without rotation.
    ``gated`` feed-forwards need a gate: a matrix of its own, or with `merged_gate` half of the up projection.
    ``parallel`` None is told by a missing norm. ``output_gate`` is half of the query projection.
    """

    activation: Literal["silu", "gelu", "relu2"] = "silu"
    position: Literal["rope", "alibi", "none"] = "rope"
    parallel: bool | None = False
    window_period: int | None = None
    chunk: int | None = None
    nope: Literal["", "full", "fourth"] = ""
    gated: bool = True
    merged_gate: bool = False
    output_gate: bool = False


_USUAL, _GEGLU = Architecture(), Architecture("gelu")
_GELU, _RELU = Architecture("gelu", gated=False), Architecture("relu2", gated=False)
_GATED_OUTPUT = Architecture(output_gate=True)
_EVERY = Architecture(window_period=0)
_OF_TWO, _OF_FOUR = Architecture(window_period=2), Architecture(window_period=4)
_NO_ROPE_IN_FULL = _OF_FOUR._replace(nope="full")

_PLAIN_NAMES = (
    "deci baichuan qwen qwen2moe qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe internlm2 "
    "minicpm minicpm3 xverse dbrx olmoe openelm deepseek deepseek2 glm4moe glm-dsa exaone granite "
    "granitemoe bailingmoe bailingmoe2 dots1 ernie4_5 ernie4_5-moe hunyuan-moe hunyuan-dense lfm2 "
    "lfm2moe seed_oss minimax-m2 mistral3 mistral4 pangu-embedded orion mimo2"
)
ARCHITECTURES: dict[str, Architecture] = {
    **dict.fromkeys(_PLAIN_NAMES.split(), _USUAL),
    "arcee": _RELU,
    "llama": _EVERY,
    "qwen2": _EVERY,
    "phi3": _EVERY._replace(merged_gate=True),
    "chatglm": Architecture(merged_gate=True),
    "glm4": Architecture(merged_gate=True),
    "qwen3next": _GATED_OUTPUT,
    "qwen35": _GATED_OUTPUT,
    "qwen35moe": _GATED_OUTPUT,
    "stablelm": Architecture(parallel=None),
    "phimoe": _EVERY,
    "starcoder2": _GELU._replace(window_period=0),
    "llama4": _NO_ROPE_IN_FULL._replace(chunk=8192),
    "gpt-oss": _OF_TWO,
    "olmo2": _OF_FOUR,
    "exaone4": _NO_ROPE_IN_FULL,
    "exaone-moe": _NO_ROPE_IN_FULL,
    "afmoe": _NO_ROPE_IN_FULL,
    "cohere2": _NO_ROPE_IN_FULL._replace(parallel=True),
    "command-r": Architecture(parallel=True),
    "smollm3": Architecture(nope="fourth"),
    "gemma": _GEGLU,
    "gemma2": _GEGLU._replace(window_period=2),
    "gemma3": _GEGLU._replace(window_period=6),
    "falcon": _GELU._replace(parallel=True),
    "phi2": _GELU._replace(parallel=True),
    "gptj": _GELU._replace(parallel=True),
    "gptneox": _GELU._replace(parallel=True),
    "gpt2": _GELU,
    "starcoder": _GELU,
    "bloom": _GELU._replace(position="alibi"),
    "mpt": _GELU._replace(position="alibi"),
    "refact": Architecture(position="alibi"),
    "nemotron": _RELU,
    "nemotron_h": _RELU._replace(position="none"),
    "nemotron_h_moe": _RELU._replace(position="none"),
    "granitehybrid": Architecture(position="none"),
    "mamba": Architecture(position="none"),
    "mamba2": Architecture(position="none"),
    "jamba": Architecture(position="none"),
}
