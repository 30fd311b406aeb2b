"""The files of ``model_configs``: names, sources, shapes."""

import itertools
import re
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from rooflinekit.specs.model import Model

FILES = sorted((Path(__file__).parents[2] / "model_configs").glob("*/*.yaml"))
RAW = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in FILES}
MODELS = {name: Model.model_validate(raw) for name, raw in RAW.items()}

# fmt: off
LAYERS = [
    ("llama-3.1-8b", 32), ("llama-3.1-405b", 126), ("qwen3-8b", 36), ("qwen3-32b", 64), ("gemma-2-9b", 42),
    ("gemma-3-27b", 62), ("gemma-4-31b", 60), ("olmo-3.1-32b", 64), ("exaone-4.0-32b", 64), ("gpt-neo-1.3b", 24),
    ("mistral-large-2407", 88), ("falcon-7b", 32), ("gpt2-xl", 48), ("deepseek-llm-67b", 95),
]

KV_BYTES = [
    # model                bytes    source
    ("qwen3-8b",           147_456),  # 144 KiB; kaito-project/kaito generator_test.go
    ("llama-3.1-8b",       131_072),  # 128 KiB; paper-digest.app/en/papers/hn_47558733
    ("llama-3.1-405b",     516_096),  # 516 KB in reviews of arXiv 2505.09343
    ("qwen2.5-72b",        327_680),  # from memory (arXiv 2505.09343 table), unverified
    ("gpt2-xl",            307_200),  # 300 KiB for "GPT-2"; paper-digest.app/en/papers/hn_47558733
    ("phi-4-mini",         131_072),  # kaito-project/kaito generator_test.go
    ("phi-4",              204_800),  # kaito-project/kaito generator_test.go
    ("falcon-7b",          8_192),    # kaito-project/kaito generator_test.go (multi-query)
    ("gemma-3-4b",         139_264),  # kaito-project/kaito generator_test.go (windowed layers counted too)
    ("mistral-7b-v0.3",    131_072),  # kaito-project/kaito generator_test.go
    ("devstral-small-2507", 163_840),  # measured in vLLM 0.11.0 for Mistral-Small-3.2-24B, the same text shape:
                                       # llm-d-incubation/llm-d-planner docs/empirical-vllm-memory-results.md
    ("seed-oss-36b",       262_144),  # 256 KiB, a public test whose repository is not recorded
]

WINDOWED_BYTES = [
    # model             whole context  windowed  window
    ("gemma-2-9b",      172_032,       172_032,  4_096),
    ("gemma-3-27b",     81_920,        425_984,  1_024),
    ("gemma-4-31b",     81_920,        819_200,  1_024),
]
# fmt: on


def words(name):
    """Split a name into the words by which names are compared."""
    return tuple(re.findall(r"[a-z0-9]+", name.lower()))


def cached_bytes(model, window=None, *, every=False):
    """Bytes at 16 bits that one token adds to the layers of this window, or to every layer."""
    runs = [run for run in model.layer_runs if every or run.mixer.window == window]
    return sum(run.times * run.mixer.cached_per_token * 2 for run in runs)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_lies_where_its_names_say(path):
    """A file is called after its id and its folder after the family."""
    model = MODELS[path.stem]
    assert (model.id, model.family) == (path.stem, path.parent.name)


def test_no_two_files_share_a_stem():
    """Every file is read: none hides another of the same name in another folder."""
    assert len(MODELS) == len(FILES) >= 121


@pytest.mark.parametrize("name", MODELS)
def test_every_file_has_sources(name):
    """The figures have a source, and so has each count."""
    model = MODELS[name]
    sources = dict(model.sources)
    assert all(sources["figures"])
    assert (model.published_count is not None) == ("published_count" in sources)
    assert all(count.source for count in (model.published_count, model.reference_count) if count)


def test_no_name_is_held_twice():
    """An id, a name, a hub id with or without its owner, and an alias each lead to one file."""
    holders = defaultdict(set)
    for key, model in MODELS.items():
        names = (model.id, model.name, *model.hub_ids, *model.aliases)
        for name in (*names, *(hub_id.split("/")[1] for hub_id in model.hub_ids)):
            holders[words(name)].add(key)
    assert {name: keys for name, keys in holders.items() if len(keys) > 1} == {}


@pytest.mark.parametrize("name", MODELS)
def test_names_are_not_repeated_within_a_file(name):
    """A hub id or an alias is listed once, and an alias says something that the id does not."""
    model = MODELS[name]
    names = [words(text) for text in (model.id, *model.hub_ids, *model.aliases)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", MODELS)
def test_defaults_are_left_out_and_keys_are_in_schema_order(name):
    """A file holds what differs from the schema's defaults, in the schema's order."""
    dumped = MODELS[name].model_dump(mode="json", exclude_defaults=True)
    assert RAW[name] == dumped
    assert list(RAW[name]) == list(dumped)


@pytest.mark.parametrize("name", MODELS)
def test_layers_are_run_lengths(name):
    """Neighbouring runs differ, and every mixer and feed-forward is used."""
    model = MODELS[name]
    pairs = [run[:2] for run in model.layers]
    assert all(left != right for left, right in itertools.pairwise(pairs))
    used = {part for pair in pairs for part in pair}
    assert used == {part.name for part in (*model.mixers, *model.feedforwards)}


@pytest.mark.parametrize("name", MODELS)
def test_mixers_are_named_after_their_reach(name):
    """A mixer with a window is called window, one without full."""
    assert all(mixer.name == ("window" if mixer.window else "full") for mixer in MODELS[name].mixers)


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if not model.verified])
def test_an_unverified_file_says_why(name):
    """Figures that nothing confirms carry a note."""
    assert any("memory" in note or "defaults" in note for note in MODELS[name].notes)


@pytest.mark.parametrize(("name", "layers"), LAYERS)
def test_number_of_layers(name, layers):
    """The runs add up to the layers of the model."""
    assert MODELS[name].layer_count == layers


@pytest.mark.parametrize(("name", "kv_bytes"), KV_BYTES)
def test_kv_bytes_per_token(name, kv_bytes):
    """One token adds the published number of bytes to a 16-bit cache, all layers counted."""
    assert cached_bytes(MODELS[name], every=True) == kv_bytes


@pytest.mark.parametrize(("name", "full", "windowed", "window"), WINDOWED_BYTES)
def test_kv_bytes_by_reach(name, full, windowed, window):
    """The cache of windowed layers is told apart from that which grows with the context."""
    assert (cached_bytes(MODELS[name]), cached_bytes(MODELS[name], window)) == (full, windowed)
