"""What llama.cpp prints for files, formats, builds and devices, in our names."""

import re

from rooflinekit.measurements.formats.names import model_name
from rooflinekit.specs.precision import is_weight_format
from rooflinekit.specs.recipes import RECIPES
from rooflinekit.units import BITS_PER_BYTE, GIB, MIB

ENGINE = "llama.cpp"
#: Where tokens are drafted, the number of steps is not told: fewer than the tokens less one.
SPECULATIVE = "; speculative: a step yields several tokens, the number of steps is not in the file"
#: A server keeps the prefixes of earlier prompts: how long this one was may be said elsewhere, or not at all.
PROCESSED = "processed tokens only"
UNKNOWN_PREFIX = f"{PROCESSED}; whether a cached prefix came before them is not in the file"
_TYPE = re.compile(
    r"(?:^|\s)(all F32|B?F16|MXFP4 MoE|[IT]?Q\d\w*(?: mix)?)(?: - (Small|Medium|Large)| - [\d.]+ bpw[ \w]*)?"
    r"(?: \(guessed\))?$"
)
_IDS = {"all_f32": "fp32", "q2_k_m": "q2_k"}
_PLAIN_BITS = {"fp32": 32.0, "f16": 16.0, "bf16": 16.0}
_CACHES = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}
_DEVICE = (
    re.compile(r"^\W*(?:[\d.]+ \w )?\s*Device \d+: ([^,]+), (?:gfx|compute)"),
    re.compile(r"ggml_vulkan: \d+ = ([^|]+?)(?: \([^)]*\))? \|"),
    re.compile(r"ggml_metal\w*: (?:found device|GPU name):\s+(.+)"),
)
#: Devices of other hosts are printed with their address.
_ADDRESS = re.compile(r"RPC\d*\[[^\]]*\]|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
_PRINTED = {"GiB": GIB, "MiB": MIB}
#: A size below this part of what its type says contradicts it: GPT-OSS is called F16, with its experts in MXFP4.
_LEAST_PART = 0.9


def weights_of(printed: str | None, size_bytes: float | None = None, parameters: float | None = None) -> str | None:
    """Name the weights that llama.cpp prints; None where `weights=` has no such name or the size denies it.

    >>> weights_of("qwen2 7B Q4_K - Medium"), weights_of("llama 8B F16"), weights_of("(guessed) IQ4_XS - 4.25 bpw")
    ('q4_k_m', 'f16', 'iq4_xs')
    >>> weights_of("gpt-oss 20B F16", size_bytes=13_779_630_336, parameters=20_914_757_184)
    """
    if not printed or not (found := _TYPE.search(printed.strip())):
        return None
    base, mixture = found[1].lower().replace(" ", "_"), found[2]
    name = f"{base}_{mixture[0].lower()}" if mixture else base
    name = _IDS.get(name, name)
    bits = _PLAIN_BITS.get(name)
    if bits and size_bytes and parameters and size_bytes < _LEAST_PART * parameters * bits / BITS_PER_BYTE:
        return None
    return name if name in RECIPES or is_weight_format(name) else None


def cache_of(keys: str | None, values: str | None) -> str | None:
    """Name the format of the KV cache; of K and V where they differ.

    >>> cache_of("f16", "f16"), cache_of("q8_0", "q4_0"), cache_of(None, None)
    ('fp16', 'q8_0/q4_0', None)
    """
    held = [_CACHES.get(one, one) for one in (keys, values) if one]
    return "/".join(dict.fromkeys(held)) or None


def file_or_name(printed: str | None) -> str | None:
    r"""Give a model's name, of a path only the file.

    >>> file_or_name("models/llama-8b.gguf"), file_or_name("C:\\models\\a.gguf"), file_or_name("ai/smollm2")
    ('llama-8b.gguf', 'a.gguf', 'ai/smollm2')
    """
    is_file = printed is not None and printed.endswith((".gguf", ".bin"))
    return re.split(r"[/\\]", printed)[-1] if printed and is_file else model_name(printed)


def build_of(number: str | None, commit: str | None) -> str | None:
    """Name a build as llama.cpp's server does.

    >>> build_of("9187", "0253fb21f"), build_of(None, None)
    ('b9187-0253fb21f', None)
    """
    return "-".join(part for part in (f"b{number}" if number else "", commit or "") if part) or None


def device_of(line: str) -> str | None:
    """Read a device's name from a line that a backend prints at its start.

    >>> device_of("  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes")
    'NVIDIA GeForce RTX 3090'
    """
    return next((found[1].strip() for one in _DEVICE if (found := one.search(line))), None)


def without_addresses(device: str | None) -> str | None:
    """Take addresses of other hosts out of a device's name.

    >>> without_addresses("RPC[192.168.1.2:50052], Orin"), without_addresses("  ")
    ('RPC, Orin', None)
    """
    return _ADDRESS.sub("RPC", device).strip() or None if device else None


def printed_bytes(size: str) -> float | None:
    """Read a size as llama.cpp prints it.

    >>> printed_bytes("1.00 GiB"), printed_bytes("63.84 MiB (16.12 BPW)"), printed_bytes("?")
    (1073741824.0, 66941091.84, None)
    """
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*(GiB|MiB)\b", size)
    return float(found[1]) * _PRINTED[found[2]] if found else None
