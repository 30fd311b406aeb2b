"""Console text of ``vllm bench serve``, alone or in a longer log; several results in one file are several runs.

The same numbers as in the JSON form, two decimals; the spelling of labels varies with the version. Read as that form.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rooflinekit.measurements.fields import Fields, read_number
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.vllm_serve import run_items
from rooflinekit.measurements.record import Skipped
from rooflinekit.measurements.source import Source

_LABELS = {
    "successful requests": "completed",
    "failed requests": "failed",
    "benchmark duration": "duration",
    "total input tokens": "total_input_tokens",
    "total generated tokens": "total_output_tokens",
    "request throughput": "request_throughput",
    "request goodput": "request_goodput",
    "input token throughput": "input_throughput",
    "output token throughput": "output_throughput",
    "peak output token throughput": "max_output_tokens_per_s",
    "peak concurrent requests": "max_concurrent_requests",
    "total token throughput": "total_token_throughput",
    "request rate configured": "request_rate",
    "traffic request rate": "request_rate",
    "maximum request concurrency": "max_concurrency",
    "acceptance rate": "spec_decode_acceptance_rate",
    "acceptance length": "spec_decode_acceptance_length",
}
#: Printed before the run as well, and then of the result that follows.
_AHEAD = frozenset({"request_rate", "max_concurrency", "model_id"})
_WORDS = "|".join(sorted(_LABELS, key=len, reverse=True))
_LINE = re.compile(
    rf"\b(?:({_WORDS})|(mean|median|std|p\d[\d.]*)\s+(ttft|tpot|itl|e2el))\s*(?:\([^()]*\))?:\s*(\S+)", re.IGNORECASE
)
#: Any other statistic, as forks and newer versions print them.
_OTHER = re.compile(r"\W*([A-Za-z][\w -]*)(?:\([^()]*\))?:\s+[\d.]+\s*")
_HEADER = re.compile(r"serving benchmark result", re.IGNORECASE)
_FIRST = re.compile(r"\bsuccessful requests:\s*\d", re.IGNORECASE)
_DURATION = re.compile(r"benchmark duration|serving benchmark result", re.IGNORECASE)
_END = re.compile(r"={20,}\s*$")
_MODEL = re.compile(r"Namespace\(.*?\bmodel='([^']+)'")
_SGLANG = re.compile(r"\(retokenized\)|E2E Latency \(ms\)|Backend:\s+sglang", re.IGNORECASE)
#: A time or rate is printed with two decimals: fewer at the end of a file are the half of a number.
_CUT = re.compile(r"\([^()]*\):\s*(?:\d+(?:\.\d?)?)?$|(?:requests|tokens|concurrency):\s*\d*$", re.IGNORECASE)


@dataclass
class _Result:
    """The result that is being read: keys of the JSON form, and where it begins."""

    data: dict[str, Any] = field(default_factory=dict)
    line: int | None = None
    foreign: bool = False
    unread: list[str] = field(default_factory=list)

    def take(self, text: str, number: int, source: Source) -> None:
        """Take the value of a line, if it holds one."""
        if model := _MODEL.search(text):
            self.data["model_id"] = model[1]
        if found := _LINE.search(text):
            label, statistic, metric, value = found.groups()
            key = _LABELS[label.lower()] if label else f"{statistic}_{metric}_ms".lower()
            if self.line:
                self.foreign |= bool(_SGLANG.search(text))
                self.data[key] = read_number(value, label or f"{statistic} {metric}", source.name, number)
            elif key in _AHEAD:
                self.data[key] = value  # as text: `inf` is told from nothing
        elif self.line and (other := _OTHER.fullmatch(text)):
            self.unread.append(other[1].rstrip(" 0123456789"))

    def items(self, source: Source) -> Iterator[Item]:
        """Give what it holds."""
        if self.foreign:
            yield Skipped("a result of SGLang's benchmark: not of vLLM", self.line)
        elif "completed" in self.data:
            yield from run_items(Fields(self.data, source, self.line))
            yield from (Skipped(f"{label}: a line of the result that is not read", self.line) for label in self.unread)
        else:
            yield Skipped("a result without `Successful requests`", self.line)


def _read(source: Source) -> Iterator[Item]:
    result, last = _Result(), ""
    for number, text in source.lines():
        last = text if text.strip() else last
        begins = _begins(text, result)
        if result.line and (begins or _END.search(text)):
            yield from result.items(source)
            result = _Result()
        if begins:
            result.line = number
        result.take(text, number, source)
    if result.line:
        if _CUT.search(last):
            source.refuse(f"is cut in the middle of a result (`{last.split(':')[0].strip()}`): write it anew", number)
        yield Skipped("a result without its closing line: statistics may be missing", result.line)
        yield from result.items(source)


def _begins(text: str, result: _Result) -> bool:
    """Tell whether a result begins: its header, or its first line where the header was not pasted."""
    first = bool(_FIRST.search(text))
    return bool(_HEADER.search(text)) or (first and (not result.line or "completed" in result.data))


def _matches(source: Source) -> bool:
    head = source.head
    result = _FIRST.search(head) and _DURATION.search(head)
    return bool(result) and not head.lstrip().startswith("{") and not _SGLANG.search(head)


FORMAT = Format("vllm-serve-text", "console text of vllm bench serve", matches=_matches, read=_read)
