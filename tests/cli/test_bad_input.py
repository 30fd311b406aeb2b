"""Each bad input gives one line that says what to do, status 2 and no traceback."""

import os
import subprocess
import sys

import pytest

import rooflinekit as rk

# fmt: off
# ruff: noqa: E501 - a row of a table is one line
TABLE = [
    # command line                                              part of the line
    pytest.param("estimate llama-3.1-8c h100-sxm", "llama-3.1-8c is not in model_configs; did you mean llama-3.1-8b", id="wrong model"),
    pytest.param("estimate qwen3-8b h100-sxn-80gb", "did you mean h100-sxm-80gb", id="wrong device"),
    pytest.param("estimate qwen3-8b A100", "'A100' is the name of 4 devices: choose one of a100-pcie-40gb", id="ambiguous"),
    pytest.param("estimate qwen3-8b gb10 --prompt -5", "--prompt=-5: expected a number, above 0", id="negative prompt"),
    pytest.param("estimate qwen3-8b gb10 --prompt 0", "--prompt=0: expected a number, above 0", id="no prompt"),
    pytest.param("estimate qwen3-8b gb10 --prompt nan", "--prompt=nan: expected a number", id="nan"),
    pytest.param("estimate qwen3-8b gb10 --prompt many", "'--prompt': 'many' is no number", id="word for a number"),
    pytest.param("estimate qwen3-8b gb10 --output 0", "--output=0: expected a number, 1 or more", id="no output"),
    pytest.param("estimate qwen3-8b gb10 --batch inf", "--batch=inf: expected a number", id="endless batch"),
    pytest.param("estimate qwen3-8b gb10 --cached 2048", "--cached=2048: expected fewer than --prompt=2048", id="all cached"),
    pytest.param("estimate qwen3-8b gb10 --chunk 0", "--chunk=0: expected a number, above 0", id="empty chunks"),
    pytest.param("estimate qwen3-8b gb10 --chunk 512 --batch 2", "--batch=2: a prompt read in chunks is one prompt", id="chunks of a batch"),
    pytest.param("estimate qwen3-8b gb10 --busy -1", "--busy=-1: expected a number, 0 or more", id="negative busy time"),
    pytest.param("estimate qwen3-8b gb10 --weights fp7", "--weights='fp7' is not known: expected one of bf16", id="weights"),
    pytest.param("estimate qwen3-8b gb10 --kv-cache fp7", "--kv-cache='fp7' is not known", id="KV cache"),
    pytest.param("estimate qwen3-8b gb10 --compute fp7", "--compute='fp7' is not known", id="compute"),
    pytest.param("estimate qwen3-8b gb10 --efficiency best", "--efficiency='best' is not known", id="efficiency"),
    pytest.param("estimate qwen3-8b gb10 --format xml", "--format='xml' is not known", id="format"),
    pytest.param("serve qwen3-8b gb10 --rate 1e-300", "'1e-300' is too small: expected 1e-15 at least", id="endless fraction"),
    pytest.param("estimate llama-3.1-8b h100-sxm --tensor-parallel 3", "; --tensor-parallel of 1, 2, 4, 8, 16, 32 would work", id="ranks"),
    pytest.param("calibrate gb10 nofile.csv", "nofile.csv: expected a CSV table of measured times: No such file or directory", id="no CSV"),
    pytest.param("read nofile.json", "nofile.json: cannot be read (No such file or directory): expected a file", id="no measurements"),
    pytest.param("estimate qwen3-8b gb10 --prompt 1e300", "'--prompt': '1e300' is too large: expected 1e+15 at most", id="endless prompt"),
    pytest.param("estimate qwen3-8b gb10 --prompt 1e9", "qwen3-8b does not fit on gb10", id="a warning beside an error is left out"),
    pytest.param("estimate qwen3-8b gb10 --explain --format csv", "--explain gives a tree, which csv cannot hold", id="tree as csv"),
    pytest.param("estimate qwen3-8b cpu-ddr5-5600-dual --explain", "has no datasheet peak for bf16", id="missing peak"),
    pytest.param("estimate qwen3-8b a10 --efficiency measured", "a10 has no measured memory_read_gb_per_s", id="missing ceiling"),
    pytest.param("estimate llama-3.1-70b rtx-4090", "llama-3.1-70b does not fit on rtx-4090", id="does not fit"),
    pytest.param("estimate - -", "MODEL and DEVICE are both `-`", id="standard input twice"),
    pytest.param("estimate nowhere.yaml gb10", "nowhere.yaml: cannot be read (No such file or directory)", id="no file"),
    pytest.param("estimate qwen3-30b-a3b h200-sxm --routing-skew -1", "--routing-skew=-1", id="negative skew"),
    pytest.param("models import nowhere.gguf", "nowhere.gguf: cannot be read (No such file or directory)", id="no GGUF"),
    pytest.param("models import nowhere/config.json", "nowhere/config.json: cannot be read (No such file", id="no config"),
    pytest.param("models import qwen3-8c", "qwen3-8c is not in model_configs; did you mean qwen3-8b", id="import of no model"),
    pytest.param("crossover qwen3-8b cpu-ddr5-5600-dual", "has no datasheet peak for bf16", id="crossover without peak"),
    pytest.param("crossover qwen3-8b gb10 --scope all", "--scope='all': expected 'products' or 'pass'", id="scope"),
    pytest.param("curve qwen3-8b gb10 --batch 4:1", "--batch: '4:1' is no size: expected a list like 1,2,4", id="empty range"),
    pytest.param("curve qwen3-8b gb10 --batch 1,,2", "'' is no size", id="empty entry"),
    pytest.param("curve qwen3-8b gb10 --batch 1:8:0", "'1:8:0' is no size", id="no step"),
    pytest.param("curve qwen3-8b gb10 --batch 1:2:3:4", "'1:2:3:4' is no size", id="too many ends"),
    pytest.param("curve qwen3-8b gb10 --batch 1:1e12", "--batch: '1:1e12' lists more than 100,000 sizes", id="endless range"),
    pytest.param("curve qwen3-8b gb10 --batch 0,1", "expected a number, above 0", id="batch of none"),
    pytest.param("curve qwen3-8b gb10 --batch nan", "'nan' is no size", id="nan in a list"),
    pytest.param("curve qwen3-8b gb10 --context -1", "--context=-1", id="negative context"),
    pytest.param("kv qwen3-8b --tokens -1", "--tokens=-1: expected a number, 0 or more", id="negative tokens"),
    pytest.param("kv qwen3-8b --kv-cache int2", "--kv-cache='int2' is not known", id="KV dtype"),
    pytest.param("devices list --vendor nvidi", "--vendor='nvidi' is not known: expected one of AMD", id="vendor"),
    pytest.param("models list --family qwenn", "--family='qwenn' is not known", id="family"),
    pytest.param("schema server", "schema='server' is not known: expected one of device, model", id="schema"),
    pytest.param("reproduce third-token", "section='third-token' is not published here", id="section"),
    pytest.param("estimate qwen3-8b gb10 --bath 2", "--bath", id="unknown option"),
    pytest.param("estimate qwen3-8b", "Missing argument 'DEVICE'", id="missing argument"),
    pytest.param("guess", "No such command 'guess'", id="unknown command"),
]
FILES = [
    # what the file holds                                       part of the line
    pytest.param(b"- 1\n- 2\n", "holds list, expected a mapping", id="list"),
    pytest.param(b"", "is empty, expected a mapping", id="empty"),
    pytest.param(b"bandwidth_gb_per_s: [", "is no YAML file", id="broken"),
    pytest.param(b"\x89PNG\r\n\x1a\n\xff\xfe", "is no YAML file", id="binary"),
    pytest.param(b"bandwidth_gb_per_s: 3350\nmemory_gb: 80\n", "unknown key `datasheet.memory_gb`: did you mean `memory_gib`?", id="unknown key"),
    pytest.param(b"bandwidth_gb_per_s: -1\n", "`datasheet.bandwidth_gb_per_s` = -1: ", id="negative"),
    pytest.param(b"bandwidth_gb_per_s: .nan\n", "`datasheet.bandwidth_gb_per_s` = nan: ", id="nan"),
]
# fmt: on


def fault(result):
    """Return the one line that a failed command printed."""
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("rooflinekit: error: ")
    return result.stderr


@pytest.mark.parametrize(("line", "part"), TABLE)
def test_bad_arguments(rooflinekit, line, part):
    """One line names what was found and what was expected."""
    assert part in fault(rooflinekit(line))


@pytest.mark.parametrize("standard_input", [False, True], ids=["file", "standard input"])
@pytest.mark.parametrize(("content", "part"), FILES)
def test_bad_files(rooflinekit, tmp_path, content, part, standard_input):
    """A user's file, or what a pipe brings, is named with its fault."""
    path = tmp_path / "card.yaml"
    path.write_bytes(content)
    line = ["estimate", "qwen3-8b", "-" if standard_input else str(path)]
    told = fault(rooflinekit(line, content if standard_input else None))
    assert part in told
    if not standard_input:
        assert str(path) in told


def test_heads_must_divide(rooflinekit):
    """A model whose heads are no multiple of its KV heads is refused by name."""
    model = "summary: {parameters: 1000, layers: 2, heads: 6, kv_heads: 4, head_dim: 8}\n"
    assert "heads (6) must be a multiple of kv_heads (4)" in fault(rooflinekit("estimate - gb10", model))


def test_a_picture_that_cannot_be_written(rooflinekit, tmp_path):
    """The folder is missing, or the ending names no kind of picture: no half of an answer is printed."""
    line = ["curve", "qwen3-8b", "gb10", "--batch", "1,2", "--png"]
    assert "curve.png: there is no folder" in fault(rooflinekit([*line, str(tmp_path / "nowhere" / "curve.png")]))
    assert "curve.word: cannot draw '.word'" in fault(rooflinekit([*line, str(tmp_path / "curve.word")]))


def test_a_wrong_format_leaves_no_picture(rooflinekit, tmp_path):
    """What is wrong is told before anything is written."""
    path = tmp_path / "curve.png"
    line = ["curve", "qwen3-8b", "gb10", "--batch", "1,2", "--png", str(path), "--format", "xml"]
    assert "--format='xml' is not known" in fault(rooflinekit(line))
    assert not path.exists()


def test_a_context_beyond_the_model_is_one_warning(rooflinekit):
    """The estimate is given, and one line on stderr names the longest context."""
    result = rooflinekit("estimate qwen3-8b gb10 --prompt 50000 --output 100")
    assert result.exit_code == 0
    assert result.stderr == "rooflinekit: warning: 50,099 tokens exceed the 40,960 that qwen3-8b was made for\n"


def test_too_many_points(rooflinekit, monkeypatch):
    """Memory that runs out is bad input, not a traceback."""

    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(rk.Deployment, "prefill", full)
    assert "more points than memory holds" in fault(rooflinekit("estimate qwen3-8b gb10"))


def test_a_closed_pipe_ends_quietly():
    """`rooflinekit ... | head` prints nothing on stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "rooflinekit", "devices", "list"]
    with os.fdopen(writer, "wb") as closed:
        ended = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, check=False)  # noqa: S603 - our own command
    assert (ended.returncode, ended.stderr) == (1, b"")
