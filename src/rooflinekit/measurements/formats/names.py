"""Names of models and dtypes as files hold them: paths are cut to their last part, since they may name a user."""

import re

#: Engines as the catalogue spells them, so that records of a log and of a server's metrics are of one engine.
VLLM, SGLANG = "vllm", "sglang"
_WEIGHTS = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32",
    "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32",
}  # fmt: skip
_OF_A_HUB = re.compile(r"[\w.-]+(?:/[\w.-]+)?(?::[\w.-]+)?")
_SMALL = re.compile(r"[0-9]{1,9}")
#: A folder of the hub's cache: .../models--Qwen--Qwen3-8B/snapshots/<commit>
_CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)")


def model_name(text: str | None) -> str | None:
    """Give a model's name without the folders it lies in.

    >>> model_name("Qwen/Qwen3-8B"), model_name("/home/user/models/Qwen3-8B/")
    ('Qwen/Qwen3-8B', 'Qwen3-8B')
    """
    if not text:
        return None
    if found := _CACHED.search(text):
        return f"{found[1]}/{found[2]}"
    if _OF_A_HUB.fullmatch(text) and not text.startswith("."):
        return text
    return re.split(r"[/\\]", text.rstrip("/\\"))[-1] or None


def whole(text: str) -> int | None:
    """Read a small count (of ranks, of a GPU); None for what is none, or has more digits than any.

    >>> whole("8"), whole("None"), whole("\u00b2"), whole("9" * 5000)
    (8, None, None, None)
    """
    return int(text) if _SMALL.fullmatch(text) else None


def weights_name(dtype: str | None) -> str | None:
    """Give our name of a dtype; None for `auto`, which says nothing.

    >>> weights_name("bfloat16"), weights_name("fp8"), weights_name("auto")
    ('bf16', 'fp8', None)
    """
    return None if dtype in {None, "", "auto", "None"} else _WEIGHTS.get(str(dtype), dtype)
