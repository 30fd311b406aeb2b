"""Rows and lines of serving: what they hold, what they leave out, and that nothing is said twice."""

import math

import pytest

import rooflinekit as rk
from rooflinekit.reports import serving as report
from rooflinekit.serving.min_gpus import min_gpus

SERVER = rk.Deployment("llama-3.1-8b", "h100-sxm")
LOAD = {"prompt_tokens": 2000, "output_tokens": 200}


@pytest.fixture(scope="module")
def serving():
    """Serve a quarter of what could be carried."""
    return rk.serve(SERVER, rate_per_s=3, **LOAD)


@pytest.fixture(scope="module")
def overloaded():
    """Send far more than could be carried."""
    return rk.serve(SERVER, rate_per_s=300, **LOAD)


# ---- titles


def test_titles_name_model_gpus_engine_and_load(serving, tmp_path):
    """One GPU by name, several with their layout; arrivals, a client or a file."""
    assert report.title(serving) == "llama-3.1-8b on h100-sxm-80gb under vllm-0.32: 3 requests/s, 2,000 in, 200 out"
    pair = rk.serve(SERVER.with_(tensor_parallel=2), concurrency=8, **LOAD)
    assert report.title(pair) == (
        "llama-3.1-8b on 2 x h100-sxm-80gb (TP2) under vllm-0.32: 8 in flight, 2,000 in, 200 out"
    )
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,100,5\n1,100,5\n")
    assert report.title(rk.serve(SERVER, trace=rk.read_trace(path))).endswith(f": 2 requests of {path}")
    assert report.title(serving, "one request").endswith(": one request, 2,000 in, 200 out")


# ---- what a server delivers


def test_latency_rows_are_the_figures(serving):
    """A row a metric, unrounded."""
    rows = report.latency_rows(serving)
    assert [row["latency"] for row in rows] == [
        "time to first token", "time per output token", "inter-token latency", "end to end",
    ]  # fmt: skip
    first = serving.time_to_first_token_s
    assert rows[0] == {
        "latency": "time to first token", "mean_s": first.mean, "p50_s": first.p50, "p90_s": first.p90,
        "p99_s": first.p99,
    }  # fmt: skip


def test_an_overloaded_server_has_no_latencies(overloaded):
    """They have no end: neither in the table, nor as figures; the rate that it could carry stays."""
    assert report.latency_rows(overloaded) == []
    rows = list(report.tidy(overloaded))
    assert not any(row["part"] == "latency" for row in rows)
    assert {row["quantity"]: row["value"] for row in rows}["most_requests_per_s"] == overloaded.most_requests_per_s
    assert not any(isinstance(row["value"], float) and math.isinf(row["value"]) for row in rows)
    first = next(report.remarks(overloaded))
    assert first.startswith("overloaded: it could carry ")
    assert first.endswith(" requests/s, 300 come; the queue grows as long as they do")


def test_remarks_say_how_it_was_found_and_what_settings_do(serving):
    """A prompt in four passes is worth a note; percentiles that the closed form lacks too, of a simulation none."""
    assert next(report.remarks(serving)) == f"by closed form, {serving.basis}"
    chunked = rk.serve(SERVER, rate_per_s=1, engine=rk.load_engine("vllm", max_num_batched_tokens=512), **LOAD)
    assert any("passes" in line for line in report.remarks(chunked))
    simulated = rk.serve(SERVER, concurrency=4, requests=20, **LOAD)
    assert any("--simulate gives the rest" in line for line in report.remarks(serving))
    assert not any("--simulate" in line for line in report.remarks(simulated))


def test_the_tidy_table_has_each_figure_once(serving):
    """Part, item and quantity are a key."""
    rows = list(report.tidy(serving))
    keys = [(row["part"], row["item"], row["quantity"]) for row in rows]
    assert len(set(keys)) == len(keys) == 4 * 4 + 9 + 3


# ---- objectives


def test_rate_lines():
    """The objective; then the rate with what stops it, or what one request alone misses."""
    kept = rk.max_rate(SERVER, rk.Objective(time_per_output_token_s=0.015), **LOAD)
    objective, told = report.rate_lines(kept)
    assert objective == "objective: mean time per output token up to 15.0 ms"
    assert told.startswith(
        f"it keeps the objective up to {kept.rate_per_s:.3g} requests/s (to 1%); above that mean time"
    )
    none = rk.max_rate(SERVER, rk.Objective(time_per_output_token_s=0.001), **LOAD)
    assert list(report.rate_lines(none))[1].startswith(
        "no rate keeps the objective: for one request alone mean time per"
    )


def test_fleets_are_rows_and_what_cannot_be_notes():
    """Layouts that serve are rows, the others each a note with the reason."""
    slo = rk.Objective(time_per_output_token_s=0.020)
    fleets = min_gpus("llama-3.1-8b", "h100-sxm", 20, slo, gpus_each=(1, 3), **LOAD)
    (row,) = report.fleet_rows(fleets)
    assert (row["layout"], row["gpus"], row["servers"]) == ("one device", fleets.gpus, fleets.gpus)
    assert row["limited_by"] == "mean time per output token"
    first, note = report.fleet_remarks(fleets)
    assert first.startswith("fewest: ")
    assert note.startswith("note: TP3: ")


# ---- cost


def test_cost_rows_leave_out_what_is_not_known():
    """No cached tokens, no row of them; no price, no column of dollars; overloaded, nothing."""
    priced = rk.cost(SERVER, usd_per_hour=2, rate_per_s=3, **LOAD)
    rows = report.cost_rows(priced)
    assert [row["token"] for row in rows] == ["input", "output"]
    assert rows[1]["usd_per_million"] == priced.usd_per_million.output
    bare = rk.cost(SERVER, rate_per_s=3, cached_tokens=1000, **LOAD)
    assert [list(row) for row in report.cost_rows(bare)] == [["token", "gpu_s", "energy_j"]] * 3
    assert report.cost_rows(rk.cost(SERVER, rate_per_s=300, **LOAD)) == []


def test_cost_remarks():
    """The price and who says so, or why there is none."""
    priced = rk.cost(SERVER, usd_per_hour=2, rate_per_s=3, **LOAD)
    assert list(report.cost_remarks(priced)) == [
        "at $2 an hour and GPU (given), idle time included",
        "energy: 700 W all the time, an upper bound",
    ]
    missed = rk.cost(SERVER, usd_per_hour=2, rate_per_s=3, objective=rk.Objective(end_to_end_s=0.1), **LOAD)
    (line,) = report.cost_remarks(missed)
    assert line.startswith("no cost: the objective is missed: mean end to end is ")


def test_embedding_rows_and_remarks():
    """Rates and times always, dollars where a price is given."""
    read = rk.embed(SERVER, 512)
    assert list(report.embedding_rows(read)) == [
        "tokens_per_s", "texts_per_s", "texts_in_a_pass", "pass_s", "one_text_alone_s", "energy_j",
    ]  # fmt: skip
    assert any(line.startswith("no cost: h100-sxm-80gb has no dated price") for line in report.embedding_remarks(read))
    priced = rk.embed(SERVER, 512, usd_per_hour=2)
    assert report.embedding_rows(priced)["usd_per_million"] == priced.usd_per_million
    assert "at $2 an hour and GPU (given)" in list(report.embedding_remarks(priced))


# ---- the ledger


def test_ledger_rows_add_up():
    """Shares of the lines are 1 together; the last row is the whole."""
    told = rk.budget(SERVER, 0.5, network_s=0.02, **LOAD)
    *rows, whole = report.ledger_rows(told)
    assert [row["line"] for row in rows] == ["network", "queue", "prefill", "decode"]
    assert sum(row["time_s"] for row in rows) == pytest.approx(whole["time_s"])
    assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_change_rows_show_sizes_with_their_units():
    """Tokens, times, a device; what cannot says so, with the best that it does."""
    told = rk.budget(SERVER, 0.9, devices=["h200-sxm", "l4"], **LOAD)
    rows = {row["change"]: row for row in report.change_rows(told)}
    assert rows["shorter prompt"] == {
        "change": "shorter prompt", "from": "2,000 tokens", "to": "cannot alone",
        "end_to_end_s": next(one.end_to_end_s for one in told.changes),
    }  # fmt: skip
    assert rows["fewer answer tokens"]["to"].endswith(" tokens")
    assert rows["faster decode"]["to"].endswith(" times")
    assert rows["l4 instead"]["to"] == "cannot alone"


def test_budget_remarks():
    """Within or beyond the limit, by how much, of which statistic; one alone is service time only."""
    kept, missed = (rk.budget(SERVER, limit, **LOAD) for limit in (60.0, 0.1))
    assert next(report.budget_remarks(kept)).startswith("within 60.0 s, by 58.")
    assert next(report.budget_remarks(missed)).startswith("misses 100 ms by ")
    assert list(report.budget_remarks(kept))[1].startswith("service time only: no queue (")
    loaded = rk.budget(SERVER, 60.0, rate_per_s=2, statistic="p99", **LOAD)
    assert list(report.budget_remarks(loaded))[1].startswith("by simulation: a percentile that ")
    assert next(report.budget_remarks(loaded)).endswith("(p99)")


def test_a_ledger_without_end_has_no_shares():
    """Dashes, not nought."""
    told = rk.budget(SERVER, 1.0, rate_per_s=300, **LOAD)
    *rows, _ = report.ledger_rows(told)
    assert all(math.isnan(row["share"]) for row in rows)
    assert next(report.budget_remarks(told)).startswith("overloaded: it could carry ")
