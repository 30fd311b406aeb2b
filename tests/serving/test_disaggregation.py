"""A split server: bytes sent by hand, what both arrangements carry, and break-evens put back in."""

import math

import pytest

import rooflinekit as rk
from rooflinekit.serving.dial import gaps

H100 = rk.Deployment("llama-3.1-8b", "h100-sxm")
GB10 = rk.Deployment("qwen3-8b", "gb10")
ASKED = {"prompt_tokens": 4000, "output_tokens": 200, "rate_per_s": 0.5}
PAIR = rk.disaggregate(GB10, **ASKED)

# fmt: off
SENT = [
    # deployment, settings                                                     bytes of one GPU
    (H100,                                 {},                                 4000 * 131_072),
    (H100.with_(kv_cache="fp8"),           {},                                 4000 * 65_536),
    (H100,                                 {"cached_tokens": 1000},            3000 * 131_072),
    (H100.with_(tensor_parallel=2),        {"gpus": 4},                        4000 * 65_536),
    (GB10,                                 {},                                 4000 * 147_456),
]
# fmt: on


@pytest.mark.parametrize(("deployment", "settings", "sent"), SENT)
def test_what_is_sent(deployment, settings, sent):
    """Tokens x bytes a token, of one GPU; a cached prefix is there already."""
    assert rk.disaggregate(deployment, **{**ASKED, **settings}).kv_bytes == sent


def test_the_transfer_by_hand():
    """524 MB over 25 GB/s take 21 ms, half of it hidden; at 2 requests/s and link the wire is 4.2% busy."""
    found = rk.disaggregate(
        H100, **{**ASKED, "rate_per_s": 2}, link_bytes_per_s=25e9, link_latency_s=0.001, overlap=0.5
    )
    wire = 4000 * 131_072 / 25e9
    busy = 2 * wire
    assert found.transfer_s == pytest.approx(0.001 + busy * wire / (2 * (1 - busy)) + wire / 2)


def test_both_arrangements_by_hand():
    """The split: a queue of prompts, the transfer, a decode batch without prompts. Together: half the rate each."""
    split, together = PAIR.split, PAIR.together
    first = PAIR.prefill.first_token_s(0.5) + PAIR.transfer_s
    batch = PAIR.decode.batch(0.5)
    assert split.time_to_first_token_s == pytest.approx(first)
    assert split.time_per_output_token_s == split.worst_gap_s == pytest.approx(PAIR.decode.step_s(batch))
    assert split.end_to_end_s == pytest.approx(first + 199 * PAIR.decode.step_s(batch))
    served = rk.serve(GB10, prompt_tokens=4000, output_tokens=200, rate_per_s=0.25)
    assert together.time_to_first_token_s == served.time_to_first_token_s.mean
    assert together.most_requests_per_s == 2 * served.most_requests_per_s
    held = gaps(served.deployment, served.engine, 4000, 200, batch=served.running)
    assert together.worst_gap_s == max(held.chunked_s, served.worst_gap_s) > 3 * split.worst_gap_s


def test_the_split_carries_what_its_narrowest_part_does():
    """Three prefill GPUs, one decode GPU, or the one link between them."""
    wide = rk.disaggregate(H100, **{**ASKED, "rate_per_s": 4}, gpus=4, prefill_gpus=3)
    prefill, decode = wide.prefill.most_requests_per_s, wide.decode.most_requests_per_s
    assert wide.split.most_requests_per_s == pytest.approx(min(3 * prefill, decode))
    assert wide.balance == pytest.approx(decode / prefill)
    slow = rk.disaggregate(H100, **{**ASKED, "rate_per_s": 4}, gpus=4, prefill_gpus=3, link_bytes_per_s=3e9)
    assert slow.split.most_requests_per_s == pytest.approx(3e9 / (4000 * 131_072))


def test_the_split_that_carries_most_is_taken():
    """No other number of prefill GPUs carries more."""
    best = rk.disaggregate(H100, **ASKED, gpus=8)
    others = [rk.disaggregate(H100, **ASKED, gpus=8, prefill_gpus=one) for one in range(1, 8)]
    assert best.split.most_requests_per_s == max(one.split.most_requests_per_s for one in others)
    assert best.prefill_gpus + best.decode_gpus == 8


@pytest.mark.parametrize(
    ("compared_by", "field"), [("end_to_end", "end_to_end_s"), ("tpot", "time_per_output_token_s")]
)
def test_a_link_break_even_put_back_gives_equality(compared_by, field):
    """Just above that link speed the split pays, just below it is slower or does not carry the load at all."""
    even = rk.disaggregate(GB10, **ASKED, compared_by=compared_by).link_break_even
    assert even.reason == ""
    above, below = (
        rk.disaggregate(
            GB10,
            **ASKED,
            compared_by=compared_by,
            link_latency_s=PAIR.link.latency_s,
            link_bytes_per_s=part * even.value,
        )
        for part in (1.001, 0.999)
    )
    assert above.better
    assert not below.better
    same = getattr(above.split, field) == pytest.approx(getattr(above.together, field), rel=1e-3)
    assert same or math.isinf(getattr(below.split, field))


def test_a_load_break_even_put_back_gives_equality():
    """Long prompts and short answers fill the one prefill GPU: near its limit the split is slower again."""
    asked = {"prompt_tokens": 8000, "output_tokens": 100}
    even = rk.disaggregate(GB10, **asked, rate_per_s=0.1).load_break_even
    ends = [end for end in (even.value, even.until) if 0 < end < math.inf]
    assert even.until in ends
    for rate in ends:
        at = rk.disaggregate(GB10, **asked, rate_per_s=rate)
        assert at.split.end_to_end_s == pytest.approx(at.together.end_to_end_s, rel=2e-3)
    assert rk.disaggregate(GB10, **asked, rate_per_s=0.8 * even.until).better
    assert not rk.disaggregate(GB10, **asked, rate_per_s=1.1 * even.until).better


def test_what_never_pays_says_why():
    """Where even a free transfer leaves the split slower, no link helps."""
    even = rk.disaggregate(H100, **{**ASKED, "rate_per_s": 16}, gpus=4).link_break_even
    assert math.isinf(even.value)
    assert even.reason.startswith("without any transfer the split takes ")


def test_an_overload_of_one_side():
    """A rate between what the two carry: the one that cannot has no latencies, and no link makes it carry."""
    rate = 0.5 * (PAIR.split.most_requests_per_s + PAIR.together.most_requests_per_s)
    found = rk.disaggregate(GB10, **{**ASKED, "rate_per_s": rate})
    assert PAIR.split.most_requests_per_s < PAIR.together.most_requests_per_s
    assert math.isinf(found.split.end_to_end_s)
    assert math.isfinite(found.together.end_to_end_s)
    assert not found.better
    assert "over any link" in found.link_break_even.reason


def test_other_gpus_for_decode():
    """A replica of another device decodes; the balance shifts with its bandwidth."""
    mixed = rk.disaggregate(H100, **ASKED, decode=H100.with_(device="h200-sxm"))
    alike = rk.disaggregate(H100, **ASKED)
    assert mixed.split.time_per_output_token_s < alike.split.time_per_output_token_s
    assert mixed.balance > alike.balance
    assert mixed.kv_bytes == alike.kv_bytes


def test_the_table_and_the_line():
    """A row an arrangement; one line with GPUs and times."""
    assert PAIR.table()["arrangement"].tolist() == ["together", "split"]
    assert repr(PAIR).startswith("1 prefill + 1 decode GPUs: TTFT ")


# fmt: off
WRONG = [
    ({"gpus": 1},                                "gpus=1: expected a multiple of 1, one replica's"),
    ({"gpus": 2.5},                              "gpus"),
    ({"prefill_gpus": 2},                        "prefill_gpus=2: expected a multiple of 1 that leaves"),
    ({"prefill_gpus": 0},                        "prefill_gpus"),
    ({"rate_per_s": 0},                          "rate_per_s"),
    ({"overlap": 1.5},                           "overlap=1.5: expected a part from 0 to 1"),
    ({"overlap": -0.5},                          "overlap"),
    ({"link_bytes_per_s": 0},                    "link_bytes_per_s"),
    ({"link_latency_s": -1},                     "link_latency_s"),
    ({"compared_by": "itl"},                     "compared_by"),
    ({"cached_tokens": 4000},                    "cached_tokens=4000: expected fewer than prompt_tokens=4000"),
    ({"output_tokens": 0},                       "output_tokens"),
    ({"decode": H100.with_(tensor_parallel=2)},  "has 2 GPUs a replica: expected 1"),
]
# fmt: on


@pytest.mark.parametrize(("asked", "told"), WRONG)
def test_wrong_input_is_told(asked, told):
    """One line that names the argument and what was expected."""
    with pytest.raises(rk.RooflinekitError) as caught:
        rk.disaggregate(H100, **{**ASKED, **asked})
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
