"""llama-server: the ``timings`` of its responses, as Docker Model Runner passes them on too.

`prompt_n` counts processed tokens only. `predicted_n` counts the token that the prefill produced, `predicted_ms` does
not time it; older builds divide one by the other all the same, so that their rates are not read.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.llama_names import ENGINE, PROCESSED, SPECULATIVE, UNKNOWN_PREFIX, file_or_name
from rooflinekit.measurements.record import Measurement, Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import MILLI

_TOOL = "llama-server"
_TIMINGS = re.compile(
    r'"(?:predicted|prompt)_(?:n|ms)"\s*:|"timings"\s*:\s*\{\s*"cache_n"|"system_fingerprint"\s*:\s*"b\d+-[0-9a-f]{7,}"'
)
_BUILD = re.compile(r"b\d+-[0-9a-f]{7,}")
_STREAMED = re.compile(r"^data:\s*\{", re.MULTILINE)


class _Prompt(NamedTuple):
    """Tokens of the prompt: processed, all of them, and those found in the cache, where the response says."""

    processed: float | None
    whole: float | None
    cached: float | None


def _read(source: Source) -> Iterator[Item]:
    for line, one in _streamed(source) if _STREAMED.search(source.head) else source.objects():
        yield from _response(Fields(one, source, line), line)


def _streamed(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a stream of events, as curl writes it."""
    for number, text in source.lines():
        body = text.removeprefix("data:").strip()
        if not text.startswith("data:") or body in ("", "[DONE]"):
            continue
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            source.refuse("an event that is no JSON: the file is cut, or was edited; write it anew", number)
        if not isinstance(found, dict):
            source.refuse("an event that is no JSON object", number)
        yield number, found


def _response(one: Fields, line: int) -> Iterator[Item]:
    timings = one if "predicted_ms" in one.data or "prompt_ms" in one.data else one.inside("timings")
    if not timings.data:
        yield Skipped("an object without timings: a part of a stream, or an error", line)
    elif _is_part(one):
        yield Skipped("timings of a part of a stream: the last part has those of the request", line)
    else:
        facts = {"engine": ENGINE, "tool": _TOOL, "batch": 1, "line": line, **_about(one)}
        prompt = _prompt(one, timings)
        yield _prefill(timings, prompt, facts)
        yield from _decode(timings, prompt, facts)


def _is_part(one: Fields) -> bool:
    choices = one.objects("choices")
    return one.data.get("stop") is False or (bool(choices) and all(not each.text("finish_reason") for each in choices))


def _about(one: Fields) -> dict[str, str | None]:
    build = one.data.get("system_fingerprint")
    version = build if isinstance(build, str) and _BUILD.fullmatch(build) else None
    return {"model": file_or_name(one.text("model")), "version": version}


def _prompt(one: Fields, timings: Fields) -> _Prompt:
    usage, processed, cached = one.inside("usage"), timings.number("prompt_n"), timings.number("cache_n")
    if cached is None:
        cached = usage.inside("prompt_tokens_details").number("cached_tokens")
    whole = usage.number("prompt_tokens") or one.number("tokens_evaluated")
    if whole is None and cached is not None and processed:
        whole = cached + processed
    if whole is not None and cached is None and processed:
        cached = whole - processed
    return _Prompt(processed, whole, cached)


def _prefill(timings: Fields, prompt: _Prompt, facts: dict[str, Any]) -> Item:
    milliseconds = timings.number("prompt_ms")
    if not milliseconds or not prompt.processed or prompt.processed < 0 or milliseconds < 0:
        return Skipped("prompt_n or prompt_ms of 0 or missing: nothing was processed", facts["line"])
    return Measurement(
        quantity="prefill_time_s", value=milliseconds * MILLI, phase="prefill",
        prompt_tokens=prompt.whole or prompt.processed, cached_tokens=prompt.cached,
        includes=UNKNOWN_PREFIX if prompt.whole is None else PROCESSED, **facts,
    )  # fmt: skip


def _decode(timings: Fields, prompt: _Prompt, facts: dict[str, Any]) -> Iterator[Item]:
    milliseconds, tokens, drafted = (timings.number(key) for key in ("predicted_ms", "predicted_n", "draft_n"))
    if not milliseconds or not tokens or milliseconds < 0:
        yield Skipped("predicted_n or predicted_ms of 0 or less, or missing: nothing was generated", facts["line"])
    elif tokens <= 1:
        yield Skipped("predicted_ms of a single token: no decode step is in it", facts["line"])
    else:
        yield Measurement(
            quantity="decode_time_s", value=milliseconds * MILLI, phase="decode",
            count=None if drafted else tokens - 1, prompt_tokens=prompt.whole, output_tokens=tokens,
            includes=f"after the first token{SPECULATIVE if drafted else ''}", **facts,
        )  # fmt: skip
    accepted = timings.number("draft_n_accepted")
    if drafted and accepted is not None:
        yield Measurement(
            quantity="acceptance_rate", value=accepted / drafted, phase="decode", count=drafted, **facts
        )  # fmt: skip


FORMAT = Format(
    "llama-server",
    "timings of llama-server's responses",
    matches=lambda source: bool(_TIMINGS.search(source.head) and re.match(r"\s*(?:[\[{]|data:|:)", source.head)),
    read=_read,
)
