"""Arrivals: gaps and lengths have the moments that their names say, and a trace file is read or refused in one line."""

import math

import numpy as np
import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.serving.arrivals import Closed, Lengths, Open, Request, Traffic, read_trace

DRAWS = 200_000
HEADER = "arrival_s,prompt_tokens,output_tokens\n"


def gaps(arrivals, seed=0, count=DRAWS):
    """Draw gaps."""
    return arrivals.gaps(np.random.default_rng(seed), count)


# fmt: off
BURSTS = [
    # rate  burstiness  squared coefficient of variation: 1 / shape of the gamma distribution
    (10.0,  1.0,        1.0),
    (10.0,  0.25,       4.0),
    (0.5,   4.0,        0.25),
]
# fmt: on


@pytest.mark.parametrize(("rate", "burstiness", "variation"), BURSTS)
def test_moments_of_the_gaps(rate, burstiness, variation):
    """The mean gap is 1 / rate whatever the bursts; its variance is that of a gamma distribution."""
    drawn = gaps(Open(rate, burstiness))
    assert drawn.mean() == pytest.approx(1 / rate, rel=0.02)
    assert drawn.var() * rate**2 == pytest.approx(variation, rel=0.05)


def test_poisson_gaps_are_exponential():
    """A burstiness of 1: half of the gaps are below ln 2 / rate."""
    assert np.median(gaps(Open(3.0))) == pytest.approx(math.log(2) / 3.0, rel=0.02)


def test_infinite_burstiness_is_a_clock():
    """Every gap is the same."""
    assert gaps(Open(4.0, math.inf), count=5).tolist() == [0.25] * 5


def test_a_closed_client_starts_everything_at_once():
    """No gaps, and as many in flight as it was told."""
    traffic = Traffic(Closed(4), Lengths(10), Lengths(5), requests=9)
    assert [request.arrival_s for request in traffic.draw(0)] == [0.0] * 9
    assert traffic.in_flight == 4
    assert Traffic(Open(1.0), Lengths(10), Lengths(5)).in_flight is None


# fmt: off
LENGTHS = [
    # lengths                                     mean     least  most
    (Lengths(1000),                               1000.0,  1000,  1000),
    (Lengths.ranged(1000, 0.8),                   900.0,   800,   1000),
    (Lengths(100, "uniform", 0.5, 1.5),           100.0,   50,    150),
    (Lengths(2, "uniform", 0.001, 1.999),         2.5,     1,     4),     # 0 is no length: 1 to 4
    (Lengths(500, "lognormal", spread=0.5),       500.0,   1,     2069),  # 500 exp(-0.125 + 3.09 x 0.5)
]
# fmt: on


@pytest.mark.parametrize(("lengths", "mean", "least", "most"), LENGTHS)
def test_lengths_are_whole_and_in_their_range(lengths, mean, least, most):
    """Draws are whole numbers of at least 1, of the mean that is given; none exceeds `longest`."""
    drawn = lengths.draw(np.random.default_rng(1), DRAWS)
    assert np.array_equal(drawn, np.rint(drawn))
    assert drawn.mean() == pytest.approx(mean, rel=0.015)
    assert drawn.min() >= least
    assert drawn.max() <= round(lengths.longest) == most


def test_the_spread_is_of_the_logarithm():
    """The logarithm of a long log-normal length has the standard deviation asked for."""
    drawn = np.log(Lengths(10_000, "lognormal", spread=0.5).draw(np.random.default_rng(2), DRAWS))
    assert drawn.std() == pytest.approx(0.5, rel=0.02)


def test_a_seed_is_a_run():
    """The same seed draws the same requests, another one others; times never fall, across blocks too."""
    traffic = Traffic(Open(5.0), Lengths.ranged(1000, 0.2), Lengths.ranged(200, 0.2), requests=5000)
    one, same, other = (list(traffic.draw(seed)) for seed in (3, 3, 4))
    assert one == same != other
    assert len(one) == 5000
    assert all(np.diff([request.arrival_s for request in one]) >= 0)
    assert one[-1].arrival_s == pytest.approx(1000, rel=0.06)


def test_the_longest_request_is_the_sum():
    """1,000 + 200 nominal tokens."""
    traffic = Traffic(Closed(1), Lengths.ranged(1000, 0.8), Lengths.ranged(200, 0.8))
    assert traffic.longest_tokens == pytest.approx(1200)


# fmt: off
REFUSED = [
    # what is made                                what the line says
    (lambda: Lengths(0),                          r"mean=0: expected a number, 1 or more"),
    (lambda: Lengths(10, "zipf"),                 r"lengths 'zipf' of 1 to 1: expected fixed, uniform or lognormal"),
    (lambda: Lengths(10, "uniform", 0.9, 0.5),    r"lengths 'uniform' of 0.9 to 0.5"),
    (lambda: Lengths(10, "lognormal", spread=-1), r"spread=-1: expected a number"),
    (lambda: Open(0),                             r"rate_per_s=0: expected a number, above 0"),
    (lambda: Open(math.inf),                      r"rate_per_s=inf"),
    (lambda: Open(1, 0),                          r"burstiness=0: expected a number, above 0"),
    (lambda: Closed(0),                           r"concurrency=0: expected a number, 1 or more, whole"),
    (lambda: Closed(2.5),                         r"concurrency=2.5"),
    (lambda: Traffic(Closed(1), Lengths(1), Lengths(1), requests=0), r"requests=0: expected a number, 1 or more"),
]
# fmt: on


@pytest.mark.parametrize(("make", "line"), REFUSED)
def test_what_is_no_traffic(make, line):
    """One line names the argument and its value."""
    with pytest.raises(InvalidInputError, match=line) as caught:
        make()
    assert "\n" not in str(caught.value)


# ---- trace files


def written(tmp_path, text, encoding="utf-8"):
    """Write a trace file."""
    path = tmp_path / "trace.csv"
    path.write_bytes(text.encode(encoding))
    return path


# fmt: off
READ = [
    # text                                                             requests
    (HEADER + "0,100,10\n0.5,200,20\n0.5,1,1\n",                       [(0, 100, 10), (0.5, 200, 20), (0.5, 1, 1)]),
    ("id,output_tokens,arrival_s,prompt_tokens\na,10,3,100\n",         [(3, 100, 10)]),
    ("\ufeff" + HEADER + "\r\n1.0,2e3,7.0\r\n",                        [(1, 2000, 7)]),
]
# fmt: on


@pytest.mark.parametrize(("text", "requests"), READ)
def test_a_trace_is_read(tmp_path, text, requests):
    """Columns in any order, others beside them, a byte order mark, blank lines, equal times."""
    trace = read_trace(written(tmp_path, text))
    assert trace.rows == tuple(Request(*map(float, one)) for one in requests)
    assert (trace.requests, trace.in_flight) == (len(requests), None)
    assert list(trace.draw(0)) == list(trace.rows)


# fmt: off
FAULTS = [
    # text                                     what the line says
    ("",                                       r"line 1: no column arrival_s, prompt_tokens, output_tokens"),
    (HEADER,                                   r"holds no request: expected a row for each"),
    ("arrival_s,prompt_tokens\n0,1\n",         r"line 1: no column output_tokens: expected arrival_s, prompt_tokens"),
    (HEADER + "0,100,10\n2,1,1\n1,1,1\n",      r"line 4: arrival_s = 1 comes before 2: sort by it"),
    (HEADER + "\n2,1,1\n\n1,1,1\n",            r"line 5: arrival_s = 1 comes before 2"),
    (HEADER + "0,100,0\n",                     r"line 2: output_tokens = '0': expected a whole number of at least 1"),
    (HEADER + "0,0,10\n",                      r"line 2: prompt_tokens = '0'"),
    (HEADER + "0,1,1\n0,-5,10\n",              r"line 3: prompt_tokens = '-5'"),
    (HEADER + "-1,100,10\n",                   r"line 2: arrival_s = '-1': expected a number of at least 0"),
    (HEADER + "0,100\n",                       r"line 2: output_tokens = None"),
    (HEADER + "0,,10\n",                       r"line 2: prompt_tokens = ''"),
    (HEADER + "0,100.5,10\n",                  r"line 2: prompt_tokens = '100.5': expected a whole number"),
    (HEADER + "0,many,10\n",                   r"line 2: prompt_tokens = 'many'"),
    (HEADER + "nan,100,10\n",                  r"line 2: arrival_s = 'nan'"),
    (HEADER + "0,100,inf\n",                   r"line 2: output_tokens = 'inf'"),
]
# fmt: on


@pytest.mark.parametrize(("text", "line"), FAULTS)
def test_a_trace_is_refused_in_one_line(tmp_path, text, line):
    """File, line, field and value are named."""
    path = written(tmp_path, text)
    with pytest.raises(InvalidInputError, match=line) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trace_that_is_no_text(tmp_path):
    """Another encoding and a file that is not there are one line too."""
    for path in (written(tmp_path, HEADER + "0,1,1\n", "utf-16"), tmp_path / "none.csv"):
        with pytest.raises(InvalidInputError, match=r"expected a CSV file with the columns arrival_s"):
            read_trace(path)
