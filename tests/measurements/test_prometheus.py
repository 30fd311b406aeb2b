"""Metrics of four engines: means are exact, percentiles are buckets, ranks are not added, scrapes are subtracted."""

import importlib
from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import read, read_between

pytest.importorskip("prometheus_client")

FILES = Path(__file__).parent / "files" / "metrics"
BEFORE, AFTER = FILES / "vllm_before.prom", FILES / "vllm_after.prom"

# fmt: off
VALUES = [
    # file                        quantity                       statistic   name        value               count
    ("sglang_overloaded.prom",    "prompt_tokens",               "total",    "",         8_128_902,           None),
    ("sglang_overloaded.prom",    "output_tokens",               "total",    "",         7_557_572,           None),
    ("sglang_overloaded.prom",    "kv_cache_usage",              "single",   "",         0.28,                None),
    ("sglang_overloaded.prom",    "prefix_cache_hit_rate",       "single",   "",         0.007507552643049313, None),
    ("sglang_overloaded.prom",    "time_to_first_token_s",       "mean",     "",         213.6535,            11008),
    ("sglang_overloaded.prom",    "time_to_first_token_s",       "p50_low",  "",         30,                  11008),
    ("sglang_overloaded.prom",    "time_to_first_token_s",       "p99_low",  "",         30,                  11008),
    ("sglang_overloaded.prom",    "inter_token_latency_s",       "mean",     "",         0.11714539,      7_400_757),
    ("sglang_overloaded.prom",    "inter_token_latency_s",       "p50_low",  "",         0.075,           7_400_757),
    ("sglang_overloaded.prom",    "inter_token_latency_s",       "p50_high", "",         0.1,             7_400_757),
    ("sglang_overloaded.prom",    "inter_token_latency_s",       "p99_low",  "",         0.5,             7_400_757),
    ("sglang_overloaded.prom",    "inter_token_latency_s",       "p99_high", "",         1,               7_400_757),
    ("sglang_overloaded.prom",    "requests_running",            "single",   "",         162,                 None),
    ("sglang_overloaded.prom",    "requests_waiting",            "single",   "",         2826,                None),
    ("sglang_2024_name_label.prom", "kv_cache_tokens",           "single",   "",         570_979,             None),
    ("sglang_2024_name_label.prom", "prompt_tokens",             "total",    "",         230_794,             None),
    ("sglang_ranks.prom",         "requests_running",            "single",   "",         7,                   None),
    ("sglang_ranks.prom",         "kv_cache_usage",              "single",   "",         0.31,                None),
    ("sglang_ranks.prom",         "kv_cache_tokens",             "single",   "",         2000,                None),
    ("tgi.prom",                  "requests_running",            "single",   "",         12,                  None),
    ("tgi.prom",                  "requests_waiting",            "single",   "",         3,                   None),
    ("tgi.prom",                  "requests_completed",          "total",    "",         40,                  None),
    ("tgi.prom",                  "requests_failed",             "total",    "overloaded", 4,                 None),
    ("tgi.prom",                  "request_per_token_s",         "mean",     "",         0.03,                  40),
    ("tgi.prom",                  "prefill_time_s",              "mean",     "",         0.05,                  40),
    ("tgi.prom",                  "decode_step_s",               "mean",     "",         0.025,                360),
    ("tgi.prom",                  "output_tokens",               "mean",     "",         100,                   40),
    ("vllm_cache_config_2024.prom", "kv_cache_blocks",           "single",   "",         24188,               None),
    ("vllm_cache_config_2025.prom", "kv_cache_blocks",           "single",   "",         573,                 None),
    ("vllm_2024.prom",            "requests_running",            "single",   "",         2,                   None),
    ("vllm_2024.prom",            "kv_cache_usage",              "single",   "",         0.25,                None),
    ("vllm_2024.prom",            "inter_token_latency_s",       "mean",     "",         0.02,                 150),
    ("vllm_2024.prom",            "queue_time_s",                "mean",     "",         0.25,                   4),
    ("llama_server.prom",         "prompt_tokens_computed",      "total",    "",         5000,                None),
    ("llama_server.prom",         "output_tokens",               "total",    "",         900,                 None),
    ("llama_server.prom",         "prompt_tokens_per_s",         "mean",     "",         2000,                None),
    ("llama_server.prom",         "output_tokens_per_s_per_user", "mean",    "",         90,                  None),
    ("llama_server.prom",         "requests_running",            "single",   "",         1,                   None),
    ("llama_server.prom",         "requests_waiting",            "single",   "",         0,                   None),
    # two engines: counters and requests are added, of usages the fullest counts; the old name is not counted again
    ("vllm_before.prom",          "requests_running",            "single",   "",         11,                  None),
    ("vllm_before.prom",          "requests_waiting",            "single",   "",         4,                   None),
    ("vllm_before.prom",          "kv_cache_usage",              "single",   "",         0.2,                 None),
    ("vllm_before.prom",          "prompt_tokens",               "total",    "",         1500,                None),
    ("vllm_before.prom",          "prompt_tokens_computed",      "total",    "",         800,                 None),
    ("vllm_before.prom",          "prefix_cache_hit_rate",       "mean",     "",         0.2,                 None),
    ("vllm_before.prom",          "requests_completed",          "total",    "stop",     8,                   None),
    ("vllm_before.prom",          "requests_failed",             "total",    "abort",    1,                   None),
    ("vllm_before.prom",          "inter_token_latency_s",       "mean",     "",         0.008,                200),
    ("vllm_before.prom",          "inter_token_latency_s",       "p50_high", "",         0.01,                 200),
    ("vllm_before.prom",          "inter_token_latency_s",       "p99_low",  "",         0.01,                 200),
    ("vllm_before.prom",          "inter_token_latency_s",       "p99_high", "",         0.025,                200),
    ("vllm_before.prom",          "time_per_output_token_s",     "mean",     "",         0.00875,                8),
    ("vllm_before.prom",          "decode_time_s",               "mean",     "",         0.5,                 None),
    ("vllm_before.prom",          "kv_cache_blocks",             "single",   "",         8192,                None),
    ("vllm_before.prom",          "kv_cache_tokens",             "single",   "",         131_072,             None),
]
# fmt: on


def picked(reading, quantity, statistic="mean", name=""):
    """Give the first record of a quantity and statistic."""
    found = ((one.quantity, one.statistic, one.name) for one in reading.records)
    return reading.records[list(found).index((quantity, statistic, name))]


@pytest.mark.parametrize(("file", "quantity", "statistic", "name", "value", "count"), VALUES)
def test_values(*, file, quantity, statistic, name, value, count):
    """Each metric means what its engine means by it."""
    found = picked(read(FILES / file), quantity, statistic, name)
    assert found.value == pytest.approx(value, rel=1e-7)
    assert found.count == count


@pytest.mark.parametrize(
    ("file", "engine", "model"),
    [
        ("sglang_overloaded.prom", "sglang", "meta-llama/Llama-3.1-8B-Instruct"),
        ("sglang_2024_name_label.prom", "sglang", "Llama-3.2-3B"),
        ("vllm_2024.prom", "vllm", "m"),
        ("llama_server.prom", "llama.cpp", None),
        ("tgi.prom", None, None),
    ],
)
def test_engine_and_model(file, engine, model):
    """The prefix names the engine, except that others wear TGI's; of a model's path the last part is kept."""
    found = {(one.engine, one.model) for one in read(FILES / file).records}
    assert found == {(engine, model)}


def test_a_percentile_in_an_open_bucket_has_no_upper_bound():
    """All that is known of a median above the last bucket is that it is above."""
    statistics = {one.statistic for one in read(FILES / "sglang_overloaded.prom").records if "first" in one.quantity}
    assert statistics == {"mean", "p50_low", "p99_low"}


def test_settings():
    """Labels of the cache's configuration are settings, typed; other labels of the page are not kept."""
    assert read(AFTER).settings == {
        "block_size": 16.0, "cache_dtype": "fp8", "gpu_memory_utilization": 0.92, "kv_cache_size_tokens": 131072.0,
        "num_gpu_blocks": 8192.0,
    }  # fmt: skip
    found = read(FILES / "vllm_cache_config_2025.prom").settings
    assert (found["enable_prefix_caching"], found["is_attention_free"], found["cache_dtype"]) == (True, False, "auto")
    assert not {"sliding_window", "num_gpu_blocks_override"} & found.keys()
    sglang = read(FILES / "sglang_2024_name_label.prom").settings
    assert sglang == {"max_prefill_tokens": 16384, "max_running_requests": 2231, "context_len": 131072}


def test_settings_in_which_engines_differ():
    """Two engines of one page keep their own sizes, and only the settings that they share."""
    reading = read(FILES / "vllm_cache_config_two.prom")
    assert [one.value for one in reading.records] == [24188, 573]
    assert reading.settings["block_size"] == 16
    assert reading.skipped == {"setting in which the engines of the page differ": 3}
    assert "num_gpu_blocks" not in reading.settings


def test_what_is_skipped():
    """Rates of a log's window, unset gauges, counters of 0 and metrics without a quantity are counted."""
    assert read(FILES / "vllm_2024.prom").skipped == {
        "gauge that is not set": 1,
        "rate of one window of the log: no measurement": 1,
    }
    assert read(BEFORE).skipped == {
        "counter of 0: nothing was served": 2,
        "metric that is no quantity of a phase": 1,
    }


# ---- two scrapes


# fmt: off
DIFFERENCES = [
    # quantity                  statistic   name     value    count
    ("prompt_tokens",           "total",    "",      3000,    None),
    ("output_tokens",           "total",    "",      4000,    None),
    ("requests_completed",      "total",    "stop",  16,      None),
    ("inter_token_latency_s",   "mean",     "",      0.008,    400),
    ("inter_token_latency_s",   "p99_high", "",      0.025,    400),
    ("prefix_cache_hit_rate",   "mean",     "",      0.2,     None),
    ("time_per_output_token_s", "mean",     "",      0.00875,   16),
    ("requests_waiting",        "single",   "",      2,       None),
    ("kv_cache_usage",          "single",   "",      0.5,     None),
]
# fmt: on


@pytest.mark.parametrize(("quantity", "statistic", "name", "value", "count"), DIFFERENCES)
def test_between(*, quantity, statistic, name, value, count):
    """Counters and histograms are subtracted, gauges are those of the later scrape."""
    found = picked(read_between(BEFORE, AFTER), quantity, statistic, name)
    assert (found.value, found.count) == (pytest.approx(value), count)


def test_between_says_so_and_takes_facts():
    """A difference says that it is one, and facts are set as by `read`."""
    reading = read_between(BEFORE, AFTER, device="NVIDIA H200")
    assert reading.file == str(AFTER)
    assert picked(reading, "output_tokens", "total").includes == "between two scrapes"
    assert {one.device for one in reading.records} == {"NVIDIA H200"}


def test_a_server_that_was_started_anew(tmp_path):
    """A counter that fell, one that is gone and another start are refused."""
    with pytest.raises(InvalidInputError, match=r"line 14: vllm:prompt_tokens_total fell from 3000 .* to 1000"):
        read_between(AFTER, BEFORE)
    other = tmp_path / "later.prom"
    other.write_text(AFTER.read_text().replace("1.7640e+09", "1.7650e+09"))
    with pytest.raises(InvalidInputError, match=r"later.prom: the process started at another time"):
        read_between(BEFORE, other)
    with pytest.raises(InvalidInputError, match=r"it lacks vllm:prompt_tokens_total: this is not the server of"):
        read_between(BEFORE, FILES / "vllm_2024.prom")


def test_between_wants_two_scrapes(tmp_path):
    """A file of another kind is named, and an interval in which nothing ran has no record of it."""
    other = tmp_path / "notes.txt"
    other.write_text("nothing")
    with pytest.raises(InvalidInputError, match=r"notes.txt: is no scrape: expected Prometheus metrics of vLLM"):
        read_between(BEFORE, other)
    assert {one.quantity for one in read_between(BEFORE, BEFORE).records} == {
        "requests_running", "requests_waiting", "kv_cache_usage", "kv_cache_blocks", "kv_cache_tokens",
    }  # fmt: skip


# ---- bad input


RUNNING = "vllm:num_requests_running"
LATENCY = "vllm:e2e_request_latency_seconds"
FALLS = f'{LATENCY}_bucket{{le="1"}} 5\n{LATENCY}_bucket{{le="2"}} 4\n{LATENCY}_sum 5\n{LATENCY}_count 5\n'

# fmt: off
BAD = [
    # text                                    message
    (f'{RUNNING} 1\nvllm:x{{model_name="m\n', r"p, line 2: no line of a metrics page: expected NAME"),
    (f"{RUNNING} 1\nvllm:x{{}} many\n",       r"p, line 2: no line of a metrics page"),
    (f"{RUNNING} 1\n{RUNNING} 2\n",           r"line 2: .* comes twice \(first in line 1\): .*`read_between`"),
    (f'{LATENCY}_bucket{{le="one"}} 5\n',     r"p, line 1: no line of a metrics page"),
    (FALLS,                                   r"the bucket up to 2 holds less than the one before"),
    (f"{RUNNING} NaN\n",                      r"without a record: 1 x gauge that is not set"),
]
# fmt: on


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_pages(text, message):
    """The message names the line and what was expected."""
    with pytest.raises(InvalidInputError, match=message):
        read("p", content=text.encode())


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("vllm_idle.prom", "3 x gauge of 0 while nothing runs; 1 x counter of 0: .*; 1 x histogram without a value"),
        ("tgi_names_on_vllm.prom", "2 x gauge of 0 while nothing runs; 1 x histogram without its sum or count"),
    ],
)
def test_idle_server(file, message):
    """A page of a server that served nothing, or a trimmed one, has no record and says why."""
    with pytest.raises(InvalidInputError, match=f"without a record: {message}"):
        read(FILES / file)


def test_without_prometheus_client(monkeypatch):
    """Without the package the message is the command that installs it."""
    monkeypatch.setattr(importlib, "import_module", lambda name: (_ for _ in ()).throw(ModuleNotFoundError(name)))
    with pytest.raises(InvalidInputError, match=r"`pip install \"rooflinekit\[metrics\]\"`"):
        read(BEFORE)


@pytest.mark.parametrize(("rank", "running"), [("tp_rank", 3), ("dp_rank", 7)])
def test_ranks_with_their_process(rank, running):
    """SGLang of 2025 names each rank's process: ranks of one engine repeat each other, data-parallel ones add up."""
    line = 'sglang:num_running_reqs{{{}="{}",engine_type="unified",model_name="m",pid="91{}"}} {}.0\n'
    second = 3 if rank == "tp_rank" else 4
    held = line.format(rank, 0, 0, 3) + line.format(rank, 1, 1, second)
    assert [one.value for one in read("a", content=held.encode()).records] == [running]
