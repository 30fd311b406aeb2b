"""``rooflinekit serve``: latencies, what is carried and what it costs, and the figures of Python for programs."""

import csv
import io
import json

import pytest

import rooflinekit as rk

LINE = "serve llama-3.1-8b h100-sxm --prompt 2000 --output 200"
SERVER = rk.Deployment("llama-3.1-8b", "h100-sxm")
LOAD = {"prompt_tokens": 2000, "output_tokens": 200}
TRACE = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{n / 5},{500 + n},{20 + n % 5}\n" for n in range(20))


def lines(result):
    """Return the lines of a command that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.rstrip("\n").split("\n")


def figures(text):
    """Read the tidy JSON: part, item and quantity name a value."""
    return {(row["part"], row["item"], row["quantity"]): row["value"] for row in json.loads(text)}


def test_the_three_tables_for_eyes(rooflinekit):
    """Who serves whom; a row a metric, a row a figure, a row a kind of token, and what they rest on."""
    told = lines(rooflinekit(f"{LINE} --rate 4 --usd-per-hour 2"))
    assert told[0] == "llama-3.1-8b on h100-sxm-80gb under vllm-0.32: 4 requests/s, 2,000 in, 200 out"
    assert told[1].split() == ["latency", "mean", "p50", "p90", "p99"]
    names = ("time to first token", "time per output token", "inter-token latency", "end to end")
    for name, line in zip(names, told[3:7], strict=True):
        assert line.startswith(name)
    assert told[7] == "by closed form, h100-sxm-80gb/vllm-0.24/bf16, vllm-0.32"
    assert told[8].endswith("--simulate gives the rest")
    assert told[9].startswith("percentiles of inter-token latency here: steps at the mean load, not judged")
    assert [line.rsplit("  ", 1)[0].strip() for line in told[13:22]] == [
        "requests/s", "it could carry, requests/s", "utilisation", "output tokens/s", "running requests",
        "pool requests", "steps with prompts", "worst gap", "preemptions",
    ]  # fmt: skip
    assert told[13].split() == ["requests/s", "4.00"]
    assert told[23] == "one token"
    assert told[24].split() == ["token", "GPU", "time", "a", "million", "energy,", "at", "most"]
    assert [line.split()[0] for line in told[26:28]] == ["input", "output"]
    assert told[28:] == [
        "at $2 an hour and GPU (given), idle time included",
        "energy: 700 W all the time, an upper bound",
    ]


def test_json_holds_the_figures_of_python(rooflinekit):
    """Unrounded, in base units; words beside the figures go to standard error."""
    result = rooflinekit(f"{LINE} --rate 4 --cached 500 --usd-per-hour 2 --format json")
    found = figures(result.stdout)
    priced = rk.cost(SERVER, usd_per_hour=2.0, rate_per_s=4, cached_tokens=500, **LOAD)
    serving = priced.serving
    assert found["latency", "time to first token", "p99_s"] == serving.time_to_first_token_s.p99
    assert found["latency", "end to end", "mean_s"] == serving.end_to_end_s.mean
    assert found["server", "", "most_requests_per_s"] == serving.most_requests_per_s
    assert found["server", "", "overloaded"] is False
    assert found["server", "", "basis"] == serving.basis
    for kind in ("input", "cached", "output"):
        assert found["cost", kind, "usd_per_million"] == getattr(priced.usd_per_million, kind)
        assert found["cost", kind, "energy_j"] == getattr(priced.energy_j, kind)
    assert "by closed form" in result.stderr


def test_csv_has_the_same_rows(rooflinekit):
    """One header, as many rows as JSON."""
    rows = list(csv.DictReader(io.StringIO(rooflinekit(f"{LINE} --rate 4 --format csv").stdout)))
    assert len(rows) == len(json.loads(rooflinekit(f"{LINE} --rate 4 --format json").stdout))
    assert list(rows[0]) == ["part", "item", "quantity", "value"]


def test_markdown_has_tables(rooflinekit):
    """Three of them, headings above."""
    text = rooflinekit(f"{LINE} --rate 4 --usd-per-hour 2 --format markdown").stdout
    assert text.startswith("### llama-3.1-8b on h100-sxm-80gb under vllm-0.32: 4 requests/s")
    assert sum(line.startswith("| :---") for line in text.splitlines()) == 3


def test_an_overloaded_server_is_told_so(rooflinekit):
    """The rate that it could carry in place of latencies, and no cost."""
    told = lines(rooflinekit(f"{LINE} --rate 500 --usd-per-hour 2"))
    most = rk.serve(SERVER, rate_per_s=500, **LOAD).most_requests_per_s
    assert told[1] == (
        f"overloaded: it could carry {most:.3g} requests/s, 500 come; the queue grows as long as they do"
    )
    assert not any(line.startswith("time to first token") for line in told)
    assert told[-1] == f"no cost: overloaded: it could carry {most:.3g} requests/s"
    found = figures(rooflinekit(f"{LINE} --rate 500 --format json").stdout)
    assert found["server", "", "overloaded"] is True
    assert not any(part == "latency" for part, *_ in found)


def test_without_a_price_one_line_says_what_to_give(rooflinekit):
    """GPU time and energy stay; beside csv and json the line goes to standard error."""
    line = "no cost: h100-sxm-80gb has no dated price in its file: give usd_per_hour (--usd-per-hour)"
    assert line in lines(rooflinekit(f"{LINE} --rate 4"))
    result = rooflinekit(f"{LINE} --rate 4 --format csv")
    assert line in result.stderr.split("\n")
    assert "usd_per_million" not in result.stdout


def test_a_closed_client(rooflinekit):
    """Percentiles by simulation; the closed form has none, its table has dashes and says why."""
    told = lines(rooflinekit(f"{LINE} --concurrency 4 --range-ratio 0.8"))
    assert ": 4 in flight, " in told[0]
    assert told[3].split()[-3:] == ["-", "-", "-"]
    assert any("--simulate gives the rest" in line for line in told)
    simulated = lines(rooflinekit(f"{LINE} --concurrency 4 --requests 20 --simulate --seed 3"))
    assert "-" not in simulated[3].split()
    assert simulated[7].startswith("by simulation: ")


def test_lengths_from_a_range(rooflinekit):
    """As public clients draw them: the mean of half to all of 2,000 is 1,500."""
    told = lines(rooflinekit(f"{LINE} --rate 2 --range-ratio 0.5"))
    assert told[0].endswith(": 2 requests/s, 1,500 on average (uniform) in, 150 on average (uniform) out")


def test_a_trace_file(rooflinekit, tmp_path):
    """Its requests, simulated; the same figures as in Python."""
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    found = figures(rooflinekit(["serve", "llama-3.1-8b", "h100-sxm", "--trace", str(path), "--format", "json"]).stdout)
    serving = rk.serve(SERVER, trace=rk.read_trace(path))
    assert found["latency", "time to first token", "mean_s"] == serving.time_to_first_token_s.mean
    assert found["server", "", "method"] == "simulation: a trace"


def test_settings_of_engine_and_layout_reach_the_server(rooflinekit):
    """The title names GPUs and profile; a note says what a small budget does to a long prompt."""
    told = lines(rooflinekit(f"{LINE} --rate 2 --tensor-parallel 2 --engine vllm-0.12 --chunk 512 --max-num-seqs 64"))
    assert told[0].startswith("llama-3.1-8b on 2 x h100-sxm-80gb (TP2) under vllm-0.10: ")
    assert any(line.startswith("note: ") and "2,000" in line for line in told)


BAD = [
    # line                                            part of the error
    ("--rate 8 --concurrency 4",                      "give one of --rate (open arrivals), --concurrency"),
    ("",                                              "give one of --rate"),
    ("--rate 0",                                      "--rate=0: expected a number, above 0"),
    ("--rate -1",                                     "--rate=-1"),
    ("--rate inf",                                    "--rate=inf"),
    ("--rate x",                                      "'x' is no number"),
    ("--concurrency 0",                               "concurrency=0: expected a number, 1 or more"),
    ("--rate 4 --output 0",                           "--output=0: expected a number, 1 or more"),
    ("--rate 4 --prompt 0",                           "--prompt=0"),
    ("--rate 4 --cached 2000",                        "--cached=2000: expected fewer than the prompt's 2000"),
    ("--rate 4 --usd-per-hour 0",                     "--usd-per-hour=0: expected a number, above 0"),
    ("--rate 4 --range-ratio 0",                      "--range-ratio 0: expected a number above 0"),
    ("--rate 4 --range-ratio 2",                      "--range-ratio 2"),
    ("--rate 4 --burstiness 0",                       "--burstiness=0"),
    ("--concurrency 4 --burstiness 0.5",              "--burstiness=0.5: only open arrivals"),
    ("--rate 4 --requests 0",                         "--requests=0"),
    ("--rate 4 --seed -1 --simulate",                 "--seed=-1: expected a number, 0 or more, whole"),
    ("--rate 4 --chunk 0",                            "--chunk=0: "),
    ("--rate 4 --engine vlm",                         "did you mean vllm"),
    ("--rate 4 --tensor-parallel 3",                  "does not divide among 3 ranks"),
    ("--rate 4 --prompt 2000000",                     "a request of 2,000,200 tokens is longer than the 131,072"),
    ("--rate 4 --format xml",                         "--format='xml' is not known"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::rooflinekit.errors.ContextLengthWarning")
@pytest.mark.parametrize(("line", "part"), BAD, ids=[line for line, _ in BAD])
def test_wrong_lines_are_told_in_one(rooflinekit, line, part):
    """One line on stderr, status 2, nothing on stdout."""
    result = rooflinekit(f"{LINE} {line}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("rooflinekit: error: ")
    assert part in result.stderr
    assert sum(told.startswith("rooflinekit: error") for told in result.stderr.splitlines()) == 1


TRACES = [
    # rows                                        options              part of the error
    ("",                                          "",                  "holds no request"),
    ("1,100,10\n0.5,100,10\n",                    "",                  "line 3: arrival_s = 0.5 comes before 1"),
    ("0,100,0\n",                                 "",                  "line 2: output_tokens = '0'"),
    ("0,x,5\n",                                   "",                  "line 2: prompt_tokens = 'x'"),
    ("0,100,10\n",                                "--rate 3",          "give one of --rate"),
    ("0,100,10\n",                                "--requests 5",      "how long they are: leave --requests out"),
    ("0,100,10\n",                                "--prompt 2048",     "how long they are: leave --prompt out"),
    ("0,100,10\n",                                "--output 5 --range-ratio 1", "leave --output, --range-ratio out"),
    ("0,100,10\n0,131000,73\n",                   "",                  "131,073 tokens is longer than the 131,072"),
    ("0,100,10\n",                                "--cached 100",      "--cached=100: expected fewer"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "options", "part"), TRACES, ids=[part for *_, part in TRACES])
def test_wrong_traces_are_told_in_one(rooflinekit, tmp_path, rows, options, part):
    """File, line, column and value."""
    path = tmp_path / "trace.csv"
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    result = rooflinekit(["serve", "llama-3.1-8b", "h100-sxm", "--trace", str(path), *options.split()])
    assert (result.exit_code, result.stdout) == (2, "")
    assert part in result.stderr
    assert result.stderr.count("\n") == 1
