"""The smaller commands, whole outputs where they are short."""

import csv
import io
import json
import sys

import jsonschema
import pytest
import yaml

import rooflinekit as rk
from rooflinekit.cli import main
from rooflinekit.reports.models import model_figures
from rooflinekit.specs import catalog
from rooflinekit.testing import published


def lines(result):
    """Return the lines of a command that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.rstrip("\n").split("\n")


# ---- curve, crossover, kv


def test_curve_as_a_whole(rooflinekit):
    """A row a batch size: what a user gets, what the device gives, and whether it fits."""
    line = "curve llama-3.1-70b h200-sxm --weights fp8 --efficiency datasheet --context 8192 --batch 1,16:32:16"
    title, *table = lines(rooflinekit(line))
    deployment = "llama-3.1-70b on h200-sxm: fp8 weights, bf16 KV, datasheet roofline of h200-sxm"
    assert title == f"{deployment}; decode at 8,192 tokens of context"
    assert table == [
        "batch     step    floor  bound   tokens/s per user  tokens/s  KV cache  fits",
        "----------------------------------------------------------------------------",
        "    1  15.3 ms  15.2 ms  memory               65.5      65.5  2.50 GiB  yes",
        "   16  23.8 ms  23.6 ms  memory               42.0       672  40.0 GiB  yes",
        "   32  33.0 ms  32.6 ms  memory               30.3       971  80.0 GiB  no",
    ]


def test_curve_is_the_batch_curve_of_python(rooflinekit):
    """The same numbers, unrounded."""
    rows = json.loads(rooflinekit("curve qwen3-8b gb10 --batch 1:3 --format json").stdout)
    curve = rk.Deployment("qwen3-8b", "gb10").batch_curve(context_tokens=2048, batch=[1, 2, 3])
    assert rows == curve.to_dict("records")


def test_curve_draws(rooflinekit, tmp_path):
    """`--png` writes a picture and says where."""
    path = tmp_path / "curve.png"
    result = rooflinekit(["curve", "qwen3-8b", "gb10", "--batch", "1,2,4", "--png", str(path)])
    assert lines(result)[-1] == f"drawn in {path}"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_crossover_names_its_peaks(rooflinekit):
    """The three pairs of peaks side by side: 390 and 458 are the text's closed forms."""
    rows = {row["efficiency"]: row for row in json.loads(rooflinekit("crossover qwen3-8b gb10 --format json").stdout)}
    assert {name: round(row["closed_form_tokens"]) for name, row in rows.items()} == {
        "calibrated": round(rk.Deployment("qwen3-8b", "gb10").crossover().closed_form_tokens),
        "measured": 390,
        "datasheet": 458,
    }


def test_crossover_as_a_whole(rooflinekit):
    """One pair of peaks, asked for."""
    assert lines(rooflinekit("crossover qwen3-8b gb10 --efficiency measured")) == [
        "qwen3-8b on gb10: crossover of the products",
        "efficiency  tokens  closed form tokens    arithmetic  bandwidth  peaks",
        "-------------------------------------------------------------------------------",
        "measured       447                 390  94.0 TFLOP/s   241 GB/s  measured peaks",
    ]


def test_crossover_leaves_out_what_was_not_measured(rooflinekit):
    """A device without measured ceilings gives the other two."""
    rows = json.loads(rooflinekit("crossover qwen3-8b a10 --format json").stdout)
    assert [row["efficiency"] for row in rows] == ["calibrated", "datasheet"]


def test_kv_as_a_whole(rooflinekit):
    """Windowed layers hold their window at most; all layers together close the table."""
    assert lines(rooflinekit("kv gemma-3-4b --tokens 32768 --sequences 4")) == [
        "gemma-3-4b: bf16 KV cache of 4 x 32,768 tokens",
        "layer   layers  window tokens  KV per token  state  sequence kv cache  KV cache",
        "-------------------------------------------------------------------------------",
        "window      29          1,024       116 KiB      0            116 MiB   464 MiB",
        "full         5              -      20.0 KiB      0            640 MiB  2.50 GiB",
        "all         34              -       136 KiB      0            756 MiB  2.95 GiB",
        "in all 3,170,893,824 bytes, 3,024.0 MiB",
    ]


KV_TABLE = [
    # model                 one token  state       8k tokens  128k tokens, in MiB
    ("qwen3-8b",              147_456,          0,   "1,152.0", "18,432.0"),
    ("gpt-oss-120b",           73_728,          0,     "292.5",  "4,612.5"),
    ("gemma-3-27b",           507_904,          0,   "1,056.0", "10,656.0"),
    ("llama-4-scout",         196_608,          0,   "1,536.0",  "7,296.0"),
    ("deepseek-v3",            70_272,          0,     "549.0",  "8,784.0"),
    ("deepseek-v3.2",          78_324,          0,     "611.9",  "9,790.5"),
    ("qwen3-next-80b-a3b",     24_576, 77_266_944,     "265.7",  "3,145.7"),
    ("nemotron-3-nano-30b-a3b", 6_144, 49_082_368,      "94.8",    "814.8"),
    ("jamba-v0.1",             16_384, 16_056_320,     "143.3",  "2,063.3"),
    ("mamba-codestral-7b",          0, 272_367_616,    "259.8",    "259.8"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "each", "totals"), [(name, row[:2], row[2:]) for name, *row in KV_TABLE])
def test_kv_closes_with_the_published_totals(rooflinekit, name, each, totals):
    """Every kind of layer: what one token adds, the state of a sequence, and the whole at 8k and 128k tokens."""
    for tokens, total in zip((8192, 131_072), totals, strict=True):
        assert lines(rooflinekit(f"kv {name} --tokens {tokens}"))[-1].endswith(f"bytes, {total} MiB")
    rows = json.loads(rooflinekit(f"kv {name} --format json").stdout)
    assert (rows[-1]["kv_bytes_per_token"], rows[-1]["state_bytes"]) == tuple(each)


def test_kv_is_the_cache_of_python(rooflinekit):
    """No device is needed for the same bytes, whatever the dtype."""
    rows = json.loads(rooflinekit("kv gemma-3-4b --tokens 5000 --sequences 3 --kv-cache fp8 --format json").stdout)
    ours = rk.Deployment("gemma-3-4b", "h100-sxm", kv_cache="fp8")
    assert rows[-1]["kv_cache_bytes"] == ours.kv_cache_bytes(5000, sequences=3)
    assert rows[-1]["kv_bytes_per_token"] == ours.kv_bytes_per_token


def test_kv_of_a_summary_from_standard_input(rooflinekit):
    """The smallest model file is enough."""
    model = "summary: {parameters: 8000000000, layers: 32, kv_heads: 8, head_dim: 128}\n"
    rows = json.loads(rooflinekit("kv - --format json", model).stdout)
    assert [(row["layer"], row["kv_bytes_per_token"]) for row in rows] == [("all", 131072.0)]


# ---- devices, models, schema


def test_devices_list_shows_all(rooflinekit):
    """All 116 devices, and those not on sale yet are marked."""
    text = lines(rooflinekit("devices list"))
    assert text[-1] == "116 devices"
    assert [line.split()[0] for line in text[2:-1]] == list(rk.list_devices())
    assert {line.split()[0] for line in text if line.endswith("announced")} == {
        name for name in rk.list_devices() if rk.load_device(name).status == "announced"
    }
    assert max(map(len, text)) <= 100


def test_models_list_shows_all(rooflinekit):
    """Every model, and figures from memory are marked."""
    result = rooflinekit("models list --format csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert tuple(row["model"] for row in rows) == rk.list_models()
    assert result.stderr == f"{len(rows)} models\n"
    unverified = {row["model"] for row in rows if row["figures"] == "unverified"}
    assert unverified == {name for name in rk.list_models() if not rk.load_model(name).verified}


def test_lists_filter(rooflinekit):
    """By vendor, kind and family, spelled in any case."""
    rows = json.loads(rooflinekit("devices list --vendor amd --kind consumer --format json").stdout)
    assert {(row["vendor"], row["kind"]) for row in rows} == {("AMD", "consumer")}
    rows = json.loads(rooflinekit("models list --family Gemma --format json").stdout)
    assert {row["family"] for row in rows} == {"gemma"}


def test_devices_show_spells_sources_out(rooflinekit):
    """Each figure of the datasheet has the title of its source beside it."""
    rows = json.loads(rooflinekit("devices show gb10 --format json").stdout)
    figures = {(row["block"], row["figure"]): row for row in rows}
    bandwidth = figures["datasheet", "bandwidth_gb_per_s"]
    assert bandwidth["value"] == 273
    assert bandwidth["source"].startswith('"Prefill vs. Decode: Why the Second Token Is a Different Workload"')
    assert figures["measured", "gemm_bf16_tflops"]["note"] == "largest BF16 matrix product; ceiling"


@pytest.mark.parametrize("name", ["gb10", "h100-sxm-80gb", "mi300a", "rubin-sxm", "cpu-ddr5-5600-dual"])
def test_every_datasheet_number_is_shown_with_a_source(rooflinekit, name):
    """No number of the datasheet is without one."""
    rows = json.loads(rooflinekit(f"devices show {name} --format json").stdout)
    bare = [row["figure"] for row in rows if row["block"] == "datasheet" and row["value"] and not row["source"]]
    assert [figure for figure in bare if figure != "memory_type"] == []


def test_figures_from_memory_are_marked(rooflinekit):
    """What was recalled rather than read says so, and so does what is announced."""
    rows = json.loads(rooflinekit("devices show mi300a --format json").stdout)
    marked = {row["figure"] for row in rows if row["note"] == "unverified"}
    assert {"bandwidth_gb_per_s", "tdp_w"} <= marked
    text = rooflinekit("devices show rubin-sxm").stdout
    assert "announced, not shipping" in text
    assert "unverified" in rooflinekit("models show mpt-30b").stdout


def test_models_show_counts_parameters(rooflinekit):
    """Shapes with their source, and the counts that follow from them."""
    text = lines(rooflinekit("models show qwen3-8b"))
    assert text[0] == "Qwen3-8B"
    assert ["total", "8,190,735,360", "counted", "from", "the", "shapes"] in [line.split() for line in text]


def figures(rooflinekit, name):
    """Return what `models show` says of each figure."""
    rows = json.loads(rooflinekit(f"models show {name} --format json").stdout)
    return {(row["block"], row["figure"]): row for row in rows}


def test_models_show_names_each_convention_of_active(rooflinekit):
    """37.6, 36.6 and 35.7 billion are one model; its prediction module is counted apart."""
    shown = figures(rooflinekit, "deepseek-v3")
    model = rk.load_model("deepseek-v3")
    for name in ("total", "active", "active_without_embedding", "active_without_tables", "prediction_module"):
        assert shown["parameters", name]["value"] == getattr(model.parameters, name)
    assert "gpt-oss, DeepSeek and Kimi" in shown["parameters", "active_without_embedding"]["note"]
    assert "MiniMax and GLM" in shown["parameters", "active_without_tables"]["note"]
    assert shown["layers", "order"]["value"] == "3 x mla + dense, 58 x mla + moe"
    assert shown["layers", "moe.experts"]["value"] == 256


def test_models_show_tells_windows_and_states(rooflinekit):
    """What a token leaves behind, by kind of layer, and what a sequence holds at any length."""
    gemma = figures(rooflinekit, "gemma-3-27b")
    assert gemma["layers", "order"]["value"].startswith("10 x (5 x window + dense, 1 x full + dense), 2 x window")
    assert gemma["KV cache", "window.kv_bytes_per_token"]["note"] == "52 layers, the last 1,024 tokens only"
    assert gemma["KV cache", "kv_bytes_per_token"]["value"] == 507_904
    hybrid = figures(rooflinekit, "qwen3-next-80b-a3b")
    assert hybrid["KV cache", "state_bytes"]["value"] == 77_266_944
    assert hybrid["layers", "gated_deltanet.layers"]["value"] == 36


def test_models_show_tells_formats_with_their_bits(rooflinekit):
    """The experts alone are packed; the rest is plain."""
    shown = figures(rooflinekit, "gpt-oss-120b")
    assert shown["weights", "mxfp4"]["value"] == "mlp.experts"
    assert shown["weights", "mxfp4"]["note"] == "4.25 bits a weight; scales: group of 32: 8-bit scale"
    assert "embedding, output layer, norms, biases, routers" in shown["weights", "bf16"]["value"]
    assert shown["weights", "stored_weight_bytes"]["value"] == rk.Deployment("gpt-oss-120b", "h200-sxm").weights_bytes


@pytest.mark.parametrize("name", rk.list_models())
def test_every_model_is_shown(name):
    """Whatever its architecture and formats, with a value in each row."""
    rows = list(model_figures(rk.load_model(name)))
    assert [row["figure"] for row in rows if row["value"] in ("", None)] == []
    assert {"total", "kv_bytes_per_token", "stored_weight_bytes"} <= {row["figure"] for row in rows}


def test_models_list_is_readable(rooflinekit):
    """Total, active, cache and state in one line each, within the width of a wide terminal."""
    text = lines(rooflinekit("models list --family deepseek"))
    assert text[0].split()[:4] == ["model", "family", "parameters", "active"]
    row = next(line.split() for line in text if line.startswith("deepseek-v3 "))
    assert row[:10] == ["deepseek-v3", "deepseek", "671", "G", "37.6", "G", "61", "68.6", "KiB", "0"]
    assert max(map(len, text)) <= 130


@pytest.mark.parametrize(("what", "kind"), [("device", catalog.DEVICES), ("model", catalog.MODELS)])
def test_schema_describes_every_shipped_file(rooflinekit, what, kind):
    """The JSON Schema is one, takes each shipped file and refuses an unknown key."""
    schema = json.loads(rooflinekit(f"schema {what}").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for path in catalog._paths(kind).values():
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert [fault.message for fault in validator.iter_errors(data)] == [], path
    assert not validator.is_valid({**data, "bandwith": 1})


# ---- reproduce


def test_reproduce_second_token(rooflinekit):
    """Every row of the trace is reproduced."""
    text = lines(rooflinekit("reproduce second-token"))
    assert text[0] == '"Prefill vs. Decode: Why the Second Token Is a Different Workload"'
    counts = {verdict: sum(line.endswith(f"  {verdict}") for line in text) for verdict in published.VERDICTS}
    assert text[-1] == ", ".join(f"{counts[verdict]} {verdict}" for verdict in published.VERDICTS)
    assert (counts["missed"], counts["reproduced"] > 30) == (0, True)


def test_reproduce_kubecon_as_a_whole(rooflinekit):
    """Quantity, published, ours, difference, tolerance and verdict, row by row."""
    assert lines(rooflinekit("reproduce kubecon")) == [
        '"Prefill and decode in LLM inference"',
        "quantity                        published      ours  difference  tolerance  verdict",
        "--------------------------------------------------------------------------------------",
        "reading 14 GB of weights          4.00 ms  4.179 ms      +4.48%       6.0%  reproduced",
        "computing with them, one token    14.0 us  14.15 us      +1.07%       5.0%  reproduced",
        "ratio of the two                      300     295.3      -1.55%       5.0%  reproduced",
        "",
        "3 reproduced, 0 missed, 0 not computed",
    ]


def test_reproduce_all_holds_every_row(rooflinekit):
    """All sections in one table for programs; the closing line stays out of it."""
    result = rooflinekit("reproduce all --format json")
    rows = json.loads(result.stdout)
    wanted = [(name, row.id) for name in published.titles() for row in published.load_section(name).rows]
    assert [(row["section"], row["id"]) for row in rows] == wanted
    assert result.stderr.endswith(" not computed\n")


def test_reproduce_exits_1_when_one_misses(rooflinekit, monkeypatch):
    """A published value that ours does not meet is shown as missed."""
    section = published.load_section("kubecon")
    wrong = section.rows[0].model_copy(update={"value": 0.005})
    broken = section.model_copy(update={"rows": (wrong, *section.rows[1:])})
    monkeypatch.setattr(published, "load_section", lambda _: broken)
    result = rooflinekit("reproduce kubecon")
    assert result.exit_code == 1
    assert result.stdout.rstrip("\n").endswith("2 reproduced, 1 missed, 0 not computed")
    assert "-16.42%       6.0%  missed" in result.stdout


# ---- the command line itself


def test_version(rooflinekit):
    """The package's own version."""
    assert lines(rooflinekit("--version")) == [f"rooflinekit {rk.__version__}"]


def test_no_command_prints_help(rooflinekit):
    """Every command is listed."""
    text = rooflinekit([]).stdout
    assert all(
        f"  {name} " in text
        for name in ("estimate", "curve", "crossover", "kv", "devices", "models", "schema", "reproduce")
    )


COMMANDS = """
estimate qwen3-8b gb10
curve qwen3-8b gb10
crossover qwen3-8b gb10
kv qwen3-8b
devices list
devices show gb10
models list
models show qwen3-8b
reproduce course
"""


@pytest.mark.parametrize("line", COMMANDS.strip().split("\n"))
def test_formats_behave_alike(rooflinekit, line):
    """JSON parses strictly, CSV has one width, markdown draws tables: in each command."""
    assert json.loads(rooflinekit(f"{line} --format json").stdout, parse_constant=pytest.fail)
    assert len({len(row) for row in csv.reader(io.StringIO(rooflinekit(f"{line} --format csv").stdout))}) == 1
    assert "\n| :---" in rooflinekit(f"{line} --format markdown").stdout.replace("---:", ":---")


def test_main_runs_the_process(monkeypatch, capsys):
    """The installed command takes its words from the process."""
    monkeypatch.setattr(sys, "argv", ["rooflinekit", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().out) == (0, f"rooflinekit {rk.__version__}\n")
