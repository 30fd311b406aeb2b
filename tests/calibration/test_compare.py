"""Measured against predicted: how each quantity is read, which have no prediction and why, MFU, MBU and the floor."""

from pathlib import Path

import pytest

import rooflinekit as rk
from rooflinekit.calibration.compare import peaks, predicted, running_batch

FILES = Path(__file__).parents[1] / "measurements/files"
GB10 = rk.Deployment("qwen3-8b", "gb10")
SEEN = {"prompt_tokens": 2048, "output_tokens": 65, "batch": 1}


def record(quantity, value, **facts):
    """Make a record of the article's request: 2,048 tokens in, 65 out, alone."""
    return rk.Measurement(quantity=quantity, value=value, **{**SEEN, **facts})


PREFILL = GB10.prefill(2048).time_s
MIDDLE = GB10.decode(2048 + 32).time_s  # in the middle of 65 tokens
MEAN = GB10.decode(2048 + 31.5).time_s  # of the steps 2,048 to 2,111
WHOLE = PREFILL + 64 * MEAN

TWO, HALF, FOUR = GB10.prefill(2048, batch=2), GB10.prefill(2048, cached_tokens=1024), GB10.decode(2079.5, batch=4)
DEEP = GB10.prefill(4096 + 2048, cached_tokens=4096).time_s  # 2,048 tokens after 4,096 that the cache holds

# fmt: off
READINGS = [
    # record                                                        measured, s         predicted, s
    (record("prefill_time_s", 0.412),                               0.412,              PREFILL),
    (record("prefill_time_s", 0.9, batch=2),                        0.9,                TWO.time_s),
    (record("prefill_time_s", 0.2, cached_tokens=1024),             0.2,                HALF.time_s),
    (record("prefill_time_s", 0.6, context_tokens=4096),            0.6,                DEEP),
    (record("prompt_tokens_per_s", 5120, context_tokens=4096),      0.4,                DEEP),
    (record("time_to_first_token_s", 0.6, context_tokens=4096),     0.6,                DEEP),
    (record("prompt_tokens_per_s", 5120, phase="prefill"),          0.4,                PREFILL),
    (record("prompt_tokens_per_s", 5120, batch=2),                  0.8,                TWO.time_s),
    (record("decode_time_s", 4.8, count=64),                        0.075,              MEAN),
    (record("output_tokens_per_s", 12.5, phase="decode", count=64), 0.08,               MEAN),
    (record("output_tokens_per_s", 50, phase="decode", count=64, batch=4), 0.08,        FOUR.time_s),
    (record("decode_step_s", 0.0744),                               0.0744,             MIDDLE),
    (record("decode_step_s", 0.0744, context_tokens=100),           0.0744,             GB10.decode(100).time_s),
    (record("time_per_output_token_s", 0.0744),                     0.0744,             MIDDLE),
    (record("inter_token_latency_s", 0.0744, statistic="median"),   0.0744,             MIDDLE),
    (record("time_to_first_token_s", 0.5, statistic="mean"),        0.5,                PREFILL),
    (record("end_to_end_s", 5.2),                                   5.2,                WHOLE),
    (record("batch_latency_s", 5.2),                                5.2,                WHOLE),
    (record("request_per_token_s", 0.08),                           5.2,                WHOLE),  # 0.08 x 65
    (record("end_to_end_s", 0.5, output_tokens=1),                  0.5,                PREFILL),
]
# fmt: on


@pytest.mark.parametrize(("one", "measured_s", "predicted_s"), READINGS, ids=lambda one: repr(one)[:40])
def test_readings(one, measured_s, predicted_s):
    """Each quantity is turned into seconds of the pass or request that it is of."""
    found = predicted(one, GB10)
    assert found.measured_s == pytest.approx(measured_s)
    assert found.time_s == pytest.approx(predicted_s, rel=1e-4)  # steps of a request are summed, not their mean's
    assert 0 < found.floor_s < found.time_s


def test_the_articles_step():
    """74.4 ms on a GB10: 0.4% off, and 15.1 GB of weights with 302 MB of K and V are 76% of 273 GB/s."""
    (row,) = rk.compare([record("decode_step_s", 0.0744, context_tokens=2048)], GB10).rows
    assert row.error == pytest.approx(0.004, abs=1e-3)
    assert row.mbu == pytest.approx((15.14e9 + 0.302e9) / 0.0744 / 273e9, rel=2e-3)
    assert row.mfu == pytest.approx(GB10.decode(2048).flops / 0.0744 / 125e12)
    assert row.expected
    assert not row.below_floor


def test_peaks_are_dense():
    """MFU is a part of the dense rate: the 2:4-sparse one, twice as high, would halve it."""
    deployment = rk.Deployment("llama-3.1-8b", "h100-sxm", memory_check=False)
    assert peaks(deployment) == (pytest.approx(989.4e12, rel=1e-3), 3350e9)
    (row,) = rk.compare([record("prefill_time_s", 0.1)], deployment).rows
    assert row.mfu == pytest.approx(deployment.prefill(2048).flops / 0.1 / 989.4e12, rel=1e-3)


# fmt: off
SKIPPED = [
    # record                                                                     part of the reason
    (record("total_tokens_per_s", 1542.71),                                      "it mixes the phases"),
    (record("output_tokens_per_s", 787.62),                                      "use its TPOT"),
    (record("inter_chunk_latency_s", 0.02),                                      "may hold several tokens"),
    (record("kernel_time_s", 0.02),                                              "compared with operators"),
    (record("step_time_s", 0.02),                                                "contexts the log does not say"),
    (record("time_to_first_token_s", 0.2, statistic="p99"),                      "no prediction of its own"),
    (record("decode_step_s", 0.01, statistic="std"),                             "no prediction of its own"),
    (record("requests_completed", 720, statistic="total"),                       "no time of a pass or request"),
    (record("end_to_end_s", 33.3, includes="loading the model and HTTP too"),    "loading the model in it"),
    (record("prefill_time_s", 0.4, prompt_tokens=None),                          "prompt_tokens is not in the file"),
    (record("decode_time_s", 4.8),                                               "count is not in the file"),
    (record("time_per_output_token_s", 0.07, batch=None),                        "nor can it be inferred from a rate"),
    (record("decode_step_s", 0.0),                                               "of 0 is no measurement"),
    (record("decode_step_s", 0.07, output_tokens=None),                          "output_tokens is not in the file"),
]
# fmt: on


@pytest.mark.parametrize(("one", "why"), SKIPPED, ids=[why for _, why in SKIPPED])
def test_what_has_no_prediction(one, why):
    """It is counted with its reason, and never guessed."""
    found = rk.compare([one, one], GB10)
    assert len(found) == 0
    ((reason, count),) = found.skipped.items()
    assert why in reason
    assert count == 2


def test_prompt_and_output_tokens_are_never_added():
    """Field mistake 25: a console's total rate gives no step; the TPOT beside it does."""
    reading = rk.read(FILES / "vllm/serve_4090.txt")
    found = rk.compare(reading.records, rk.Deployment("llama-3.1-8b", "rtx-4090", engine="vllm"))
    assert {row.record.quantity for row in found.rows} == {
        "time_to_first_token_s", "time_per_output_token_s", "inter_token_latency_s",
    }  # fmt: skip
    assert sum(count for why, count in found.skipped.items() if "mixes the phases" in why) == 1


def test_the_running_batch_is_rate_times_tpot():
    """787.62 tokens/s at 20.27 ms a token: 16.0 sequences ran together, whatever was sent."""
    run = rk.read(FILES / "vllm/serve_4090.txt").records
    tpot = next(one for one in run if one.quantity == "time_per_output_token_s")
    batch, said = running_batch(tpot, run)
    assert batch == pytest.approx(787.62 * 0.02027)
    assert said == "16.0 sequences (output rate x TPOT)"


@pytest.mark.parametrize(
    ("file", "quantity"),
    [("guidellm/v0.8.1.json", "request_per_token_s"), ("vllm/serve_4090.txt", "time_per_output_token_s")],
)
def test_tpot_is_mapped_by_tool(file, quantity):
    """Field mistake 26: GuideLLM's time per output token holds the first token and its prefill, vLLM's does not."""
    names = {one.quantity for one in rk.read(FILES / file).records}
    assert names & {"request_per_token_s", "time_per_output_token_s"} == {quantity}


def test_b27_both_definitions_of_tpot():
    """One request of 5.1736 s: 74.4 ms a token after the first, 79.6 ms over all; both agree, each by its own name."""
    total = 0.412 + 64 * 0.0744
    without, whole = (total - 0.412) / 64, total / 65
    assert (without, whole) == (pytest.approx(0.0744), pytest.approx(0.0796, abs=5e-5))
    good = rk.compare([record("time_per_output_token_s", without), record("request_per_token_s", whole)], GB10).rows
    assert [abs(row.error) < 0.01 for row in good] == [True, True]
    (swapped,) = rk.compare([record("time_per_output_token_s", whole)], GB10).rows
    assert swapped.error == pytest.approx(-0.0615, abs=2e-3)


@pytest.mark.parametrize(("seconds", "below"), [(0.0562, True), (0.0570, False)])
def test_faster_than_the_floor_is_a_fault(seconds, below):
    """Field mistake 28: 15.44 GB over 273 GB/s are 56.6 ms; what is faster was not measured right."""
    (row,) = rk.compare([record("decode_step_s", seconds, context_tokens=2048)], GB10).rows
    assert row.floor_s == pytest.approx(15.44e9 / 273e9, rel=1e-3)
    assert row.below_floor is below


def test_rows_as_a_table():
    """A tidy DataFrame holds what the rows do."""
    table = rk.compare([record("prefill_time_s", 0.412), record("decode_step_s", 0.0744)], GB10).table()
    assert list(table["phase"]) == ["prefill", "decode"]
    assert list(table["measured_s"]) == [0.412, 0.0744]
    assert (table["error"].abs() < 0.02).all()
    assert not table["below_floor"].any()
