"""Errors name options as they are typed, in every command, whatever the library calls its arguments."""

import pytest
import typer

from rooflinekit.cli import app
from rooflinekit.cli.names import OPTIONS, as_typed, options_of

COMMANDS = typer.main.get_command(app).commands
#: Options that take one number, wherever they are.
NUMBERS = {
    "--acceptance", "--batch", "--budget", "--burstiness", "--busy", "--cached", "--chunk", "--concurrency",
    "--context", "--data-parallel-attention", "--drafted", "--e2e", "--expert-parallel", "--gpus", "--itl", "--limit",
    "--link", "--link-latency", "--max-model-len", "--max-num-seqs", "--network", "--output", "--overlap",
    "--pipeline-parallel", "--prefill-gpus", "--prompt", "--range-ratio", "--rate", "--requests", "--routing-skew",
    "--seed", "--sequences", "--tensor-parallel", "--threshold", "--tokens", "--tolerance", "--tpot", "--ttft",
    "--utilization",
}  # fmt: skip
LINES = {
    "budget": "budget llama-3.1-8b h100-sxm --limit 10 --rate 1",
    "capacity": "capacity llama-3.1-8b h100-sxm",
    "curve": "curve llama-3.1-8b h100-sxm",
    "dial": "dial llama-3.1-8b h100-sxm --rate 1",
    "disaggregate": "disaggregate llama-3.1-8b h100-sxm --rate 4",
    "embed": "embed llama-3.1-8b h100-sxm",
    "estimate": "estimate llama-3.1-8b h100-sxm",
    "freeze": "freeze llama-3.1-8b h100-sxm",
    "kv": "kv llama-3.1-8b",
    "levers": "levers llama-3.1-8b h100-sxm --output 8",
    "plan": "plan llama-3.1-8b --device h100-sxm",
    "serve": "serve llama-3.1-8b h100-sxm --rate 4",
    "slo": "slo llama-3.1-8b h100-sxm --tpot 20ms",
    "speculate": "speculate llama-3.1-8b h100-sxm --draft 0.2 --acceptance 0.5",
    "verify": "verify llama-3.1-8b h100-sxm",
}
QUICK = ("capacity", "kv", "embed")

# fmt: off
TYPED = [
    # what the library says                           what the line says
    ("prompt_tokens=-5: expected a number",           "--prompt=-5: expected a number"),
    ("kv_cache='fp7' is not known",                   "--kv-cache='fp7' is not known"),
    ("expected fewer than prompt_tokens=8",           "expected fewer than --prompt=8"),
    ("profile x: `max_num_batched_tokens` = 0: no",   "profile x: --chunk=0: no"),
    ("Use more GPUs (`kv_cache=`), smaller ones",     "Use more GPUs (--kv-cache), smaller ones"),
    ("a smaller kv_cache=, or more GPUs",             "a smaller --kv-cache, or more GPUs"),
    ("one of rate_per_s= (open) or none",             "one of --rate (open) or none"),
    ("t.csv, line 2: prompt_tokens = 'x'",            "t.csv, line 2: prompt_tokens = 'x'"),
    ("add a column `kv_cache`, or give --kv-cache",   "add a column `kv_cache`, or give --kv-cache"),
    ("`datasheet.kv_cache` = 3: wrong",               "`datasheet.kv_cache` = 3: wrong"),
    ("runs/kv_cache=3/file.yaml: cannot be read",     "runs/kv_cache=3/file.yaml: cannot be read"),
    ("overlap=2: expected a part",                    "overlap=2: expected a part"),
]
# fmt: on


@pytest.mark.parametrize(("said", "typed"), TYPED)
def test_options_stand_where_arguments_stood(said, typed):
    """Before a value or in ticks; columns, keys, paths and arguments of no option stay as they are."""
    assert as_typed(said, options_of(["--prompt", "--kv-cache", "--chunk", "--rate", "-h"])) == typed


def test_every_option_of_the_table_is_one():
    """A name whose option is gone would be told as before."""
    known = {flag for command in COMMANDS.values() for one in command.params for flag in one.opts}
    assert {flag for flags in OPTIONS.values() for flag in flags} <= known
    assert known >= NUMBERS


@pytest.mark.parametrize("wrong", ["abc", "-1"])
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LINES]
)
def test_every_number_is_named_where_it_is_wrong(rooflinekit, name, wrong):
    """One line with the option, status 2 and nothing on stdout, for a word and for a number below all that may be."""
    flags = [one.opts[0] for one in COMMANDS[name].params if one.opts[0] in NUMBERS]
    assert flags
    for flag in flags:
        result = rooflinekit([*LINES[name].split(), *_beside(name, flag), flag, wrong])
        assert (result.exit_code, result.stdout) == (2, ""), flag
        assert flag in result.stderr, flag
        assert result.stderr.count("\n") == 1, flag


def _beside(name, flag):
    """Give what an option needs: a client of its own for those that are in flight."""
    return ["--simulate"] if flag == "--seed" and name != "levers" else []


# fmt: off
TWICE = [
    # what the library says                                                 what is typed
    ('go on with assume=["model_type=olmoe"] (`--assume model_type=olmoe`)', "go on with --assume model_type=olmoe"),
    ("assume=['a', 'b'] (`--assume a --assume b`)",                          "--assume a --assume b"),
    ("or name it with model= (--model)",                                     "or name it with --model"),
    ("tensor_parallel of 1, 2 would work",                                   "--tensor-parallel of 1, 2 would work"),
    ("give usd_per_hour (--usd-per-hour)",                                   "give usd_per_hour (--usd-per-hour)"),
]
# fmt: on


@pytest.mark.parametrize(("said", "typed"), TWICE)
def test_an_option_is_named_once(said, typed):
    """Where the library names both argument and option, the option is enough."""
    assert as_typed(said, options_of(["--assume", "--model", "--tensor-parallel"])) == typed
