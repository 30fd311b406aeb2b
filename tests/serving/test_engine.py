"""Engine profiles: what a name means, what holds on a device, where a figure is from; what it does to a prompt."""

import datetime as dt

import pytest

import rooflinekit as rk
from rooflinekit.errors import SpecError, UnknownNameError
from rooflinekit.serving import EngineProfile, lint_workload, list_engines, load_engine
from rooflinekit.specs.catalog import load_device
from rooflinekit.specs.yamlfile import check

# ---- names

# fmt: off
NAMES = [
    # asked                                    profile              why
    ("vllm",                                   "vllm-0.32",         "the newest"),
    ("vllm-serve",                             "vllm-0.32",         "a server unless said otherwise"),
    ("vllm-offline",                           "vllm-0.32-offline", "the LLM class"),
    ("vllm-0.31",                              "vllm-0.31",         "by its id"),
    ("vLLM-0.31.0",                            "vllm-0.31",         "a patch release, spelled as its makers do"),
    ("vllm-0.15.1",                            "vllm-0.10",         "the newest up to the version"),
    ("vllm-0.23.1rc1",                         "vllm-0.21",         "a release candidate"),
    ("vllm-0.13.0rc2.dev112+g763963aa7",       "vllm-0.10",         "a development build"),
    ("vllm-0.99",                              "vllm-0.32",         "newer than any profile"),
    ("vllm-0.31-offline",                      "vllm-0.31-offline", "version and mode"),
    ("sglang",                                 "sglang-0.5",        "another engine"),
    ("trtllm",                                 "tensorrt-llm-1.1",  "a nickname"),
    ("llama-server",                           "llama.cpp-7100",    "the server of llama.cpp"),
    ("llama.cpp-b7300",                        "llama.cpp-7100",    "a build number"),
    ("ollama",                                 "ollama-0.20",       "its own defaults over llama.cpp's cache"),
]
# fmt: on


@pytest.mark.parametrize(("asked", "profile", "why"), NAMES)
def test_a_name_means_the_profile_that_held(asked, profile, why):
    """An engine, a version, a mode."""
    assert load_engine(asked).id == profile, why


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("vlm", "did you mean vllm"),
        ("sglnag", "did you mean sglang"),
        ("", "'' is no engine profile"),
        ("vllm-0.5", "'vllm-0.5': the oldest profile of vllm \\(serve\\) is that of 0.10"),
        ("ollama-offline", "is no engine profile"),
    ],
)
def test_a_wrong_name_is_told_the_nearest(asked, told):
    """An unknown engine, one that is too old, a mode that it has not."""
    with pytest.raises(UnknownNameError, match=told):
        load_engine(asked)


def test_every_profile_loads_with_a_date_and_sources():
    """Each profile says as of when, and where each figure of it is from."""
    for name in list_engines():
        profile = load_engine(name)
        assert dt.date(2025, 1, 1) < profile.date < dt.date(2027, 1, 1)
        own = profile.model_fields_set - {"id", "engine", "mode", "version", "date", "sources", "notes"}
        assert own == {field for field, _ in profile.sources}
        assert all(len(line) > 8 for _, lines in profile.sources for line in lines)


def test_a_figure_without_a_source_is_refused():
    """A profile that sets a figure must say where it is from."""
    whole = load_engine("sglang").model_dump(exclude_unset=True)
    with pytest.raises(SpecError, match="graph_gib without a source: add a line to `sources`"):
        check(EngineProfile, {**whole, "graph_gib": 1.0}, "mine")


def test_a_profile_without_a_budget_is_refused():
    """How many tokens a pass takes is the least that a profile says."""
    whole = load_engine("sglang").model_dump(exclude_unset=True)
    with pytest.raises(SpecError, match="missing max_num_batched_tokens or tiers"):
        check(EngineProfile, {**whole, "tiers": ()}, "mine")


# ---- devices

# fmt: off
BUDGETS = [
    # profile             device                      tokens  sequences  quantity
    ("vllm-0.31",         "rtx-4090",                   2048,       256, "24 GiB: the smallest tier"),
    ("vllm-0.31",         "h100-sxm",                   8192,      1024, "80 GiB: from 70 GiB"),
    ("vllm-0.31",         "h200-sxm",                   8192,      1024, "140 GiB"),
    ("vllm-0.31",         "b200-sxm",                  16384,      1024, "179 GiB: from 160 GiB"),
    ("vllm-0.31",         "gb10",                       2048,       256, "121 GiB, but no memory query"),
    ("vllm-0.32",         "gb10",                       2048,       256, "kept there on purpose"),
    ("vllm-0.32",         "a100-sxm-80gb",              2048,       256, "kept there by name"),
    ("vllm-0.10",         "b200-sxm",                   8192,      1024, "no third tier yet"),
    ("vllm-0.31-offline", "rtx-4090",                   8192,       256, "the LLM class"),
    ("vllm-0.31-offline", "h100-sxm",                  16384,      1024, "the LLM class"),
    ("vllm-0.31-offline", "gb10",                       8192,       256, "the LLM class: what the article set anyway"),
    ("sglang",            "t4",                         2048,      None, "16 GiB"),
    ("sglang",            "rtx-4090",                   4096,      None, "24 GiB"),
    ("sglang",            "h200-sxm",                   8192,      None, "140 GiB"),
    ("sglang",            "b200-sxm",                  16384,      None, "179 GiB"),
    ("tensorrt-llm",      "h100-sxm",                   8192,      2048, "the same on every device"),
    ("llama.cpp",         "rtx-4090",                    512,         4, "a micro-batch of the batch of 2,048"),
    ("ollama",            "rtx-4090",                    512,         1, "one request at a time"),
]
# fmt: on


@pytest.mark.parametrize(("profile", "device", "tokens", "sequences", "quantity"), BUDGETS)
def test_budget_and_sequences_by_device(profile, device, tokens, sequences, quantity):
    """The memory tier of a device decides, but for the devices that engines treat apart."""
    engine, spec = load_engine(profile), load_device(device)
    assert (engine.token_budget(spec), engine.sequences(spec)) == (tokens, sequences), quantity


def test_ollama_context_follows_the_memory():
    """4k below 24 GiB, 32k below 48, 256k from there on."""
    engine = load_engine("ollama")
    assert [engine.longest(load_device(name)) for name in ("rtx-4080", "rtx-3090", "h100-sxm")] == [4096, 32768, 262144]


def test_memory_rules_by_version():
    """0.9 became 0.92, graphs moved into the pool, states take two pages, passes in flight became two."""
    old, between, new = load_engine("vllm-0.12"), load_engine("vllm-0.21"), load_engine("vllm-0.32")
    assert [one.gpu_memory_utilization for one in (old, between, new)] == [0.9, 0.9, 0.92]
    assert [one.graph_memory for one in (old, between, new)] == ["on_top", "in_pool", "in_pool"]
    assert [one.state_blocks for one in (old, between, new)] == [1, 1, 2]
    assert [one.printed_tokens for one in (old, between, new)] == ["groups", "groups", "concurrency"]
    assert [one.in_flight_batches for one in (old, between, new)] == [1, 1, 2]


# ---- the user's figures


def test_the_user_sets_figures_by_their_names():
    """A changed figure holds on every device, and says who set it; the others keep their sources."""
    engine = load_engine("vllm", max_num_batched_tokens=4096, enable_prefix_caching=False)
    assert engine.token_budget(load_device("b200-sxm")) == 4096
    assert engine.source("max_num_batched_tokens") == "set by the user"
    assert engine.source("block_size") == "vLLM 0.32.0 vllm/config/cache.py, DEFAULT_BLOCK_SIZE"
    assert engine.source("step_host_s") == "a default of rooflinekit: no figure of the engine"
    assert not engine.enable_prefix_caching
    assert load_engine(engine, max_num_seqs=8).max_num_batched_tokens == 4096


def test_none_leaves_a_figure_as_it_is():
    """What was not said changes nothing."""
    assert load_engine("vllm").with_(max_num_seqs=None) is load_engine("vllm")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"max_num_batched_token": 1}, "unknown key `max_num_batched_token`: did you mean `max_num_batched_tokens`"),
        ({"gpu_memory_utilization": 1.2}, "gpu_memory_utilization=1.2: expected a part of the memory"),
        ({"max_num_seqs": 0}, "max_num_seqs=0: expected a whole number"),
        ({"prefill": "both"}, "`prefill` = 'both'"),
    ],
)
def test_wrong_figures_are_refused(changes, told):
    """Misspelt names and values out of their range."""
    with pytest.raises(SpecError, match=told):
        load_engine("vllm", **changes)


# ---- workloads


def test_ten_thousand_tokens_run_as_five_passes_on_gb10():
    """The article's trap: the smallest tier, whatever the memory."""
    told = lint_workload("vllm-0.31", rk.Deployment("qwen3-8b", "gb10"), 10_000)
    assert told == [
        "a 10,000-token prompt runs as 5 passes under a budget of 2,048: each reads the weights again",
        "gb10 has 121 GiB but the budget of the smallest memory tier, 2,048: set max_num_batched_tokens",
    ]


def test_a_budget_of_8192_takes_two_passes_and_no_trap():
    """A budget that the user set is not the tier's."""
    told = lint_workload(load_engine("vllm", max_num_batched_tokens=8192), rk.Deployment("qwen3-8b", "gb10"), 10_000)
    assert told == ["a 10,000-token prompt runs as 2 passes under a budget of 8,192: each reads the weights again"]


def test_nothing_is_said_of_a_workload_that_fits():
    """A prompt below the budget, few requests."""
    assert lint_workload("vllm", rk.Deployment("qwen3-8b", "h200-sxm"), 2048, output_tokens=100, concurrency=8) == []


# fmt: off
LINTS = [
    # engine         deployment                       workload            told
    ("tensorrt-llm", ("llama-3.1-8b", "h100-sxm"),  (10_000, 1, 1),     "a 10,000-token prompt is refused"),
    ("vllm",         ("llama-3.1-8b", "h100-sxm"),  (131_000, 100, 1),  "131,100 tokens of prompt and answer exceed"),
    ("vllm",         ("llama-3.1-8b", "rtx-4090"),  (80_000, 100, 1),   "not one request of 80,100"),
    ("vllm",         ("llama-3.1-8b", "h100-sxm"),  (4_000, 96, 500),   "the KV pool holds 111"),
    ("vllm",         ("qwen3-8b", "gb10"),          (1_000, 100, 300),  "300 requests are in flight, 256 run at once"),
]
# fmt: on


@pytest.mark.parametrize(("engine", "deployment", "workload", "told"), LINTS)
def test_what_a_workload_runs_into(engine, deployment, workload, told):
    """Whole prompts, lengths, a full pool, a full batch."""
    prompt, output, requests = workload
    found = lint_workload(engine, rk.Deployment(*deployment), prompt, output_tokens=output, concurrency=requests)
    assert any(told in line for line in found), found
