"""Make the mistakes that calculators of this kind make, one at a time, and show the test that notices.

``python tools/mutants.py [NUMBER ...]`` copies the checkout, applies each mistake as a patch, and runs the tests that
are to fail. It ends with status 1 if a mistake goes unnoticed, 2 if a patch no longer applies or a test was red before.
"""
# ruff: noqa: INP001, S603, T201 - a script: no package, runs our own tests, prints what it finds

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("src", "hardware_db", "model_configs", "tests", "pyproject.toml")
FAILED = 1  # pytest's status when tests ran and some failed; a collection error has another


class Mutant(NamedTuple):
    """One mistake: its number in docs/mistakes.md, what it is, the patch, and the tests that must notice."""

    number: str
    mistake: str
    file: str
    old: str
    new: str
    killers: tuple[str, ...]


FORWARD, FORMULAS = "tests/operators/test_forward.py", "tests/operators/test_formulas.py"
PROPERTIES, DEPLOYMENT = "tests/phases/test_properties.py", "tests/phases/test_deployment.py"
CATALOG, COUNTS = "tests/specs/test_catalog.py", "tests/reference/test_parameter_counts.py"
LINTER = "tests/specs/test_hardware_db.py::test_every_shipped_device_passes_the_linter"

MUTANTS = (
    Mutant(
        "1",
        "KV counted for query heads",
        "src/rooflinekit/specs/mixer.py",
        "return self.kv_heads * (self.head_dim + self.value_width)",
        "return self.heads * (self.head_dim + self.value_width)",
        (f"{FORWARD}::test_a_step_reads_kv_for_kv_heads_only", f"{FORWARD}::test_counts_by_hand"),
    ),
    Mutant(
        "2",
        "head width taken as hidden / heads",
        "src/rooflinekit/specs/mixer.py",
        "query, key, value = self.heads * self.head_dim,",
        "query, key, value = hidden_size,",
        (f"{COUNTS}::test_recount_equals_the_literal",),
    ),
    Mutant(
        "6",
        "KV dtype taken from the weight dtype",
        "src/rooflinekit/phases/resolve.py",
        "cache = kv_cache or dtype",
        'cache = kv_cache or ("fp8" if held.bits <= 9 else dtype)',
        (f"{DEPLOYMENT}::test_the_cache_dtype_does_not_follow_the_weights",),
    ),
    Mutant(
        "7",
        "output layer run on every prompt position",
        "src/rooflinekit/operators/forward.py",
        '"flops": {SAMPLED: matmul_flops(1, hidden, vocabulary)}',
        '"flops": {TOKENS: matmul_flops(1, hidden, vocabulary)}',
        (f"{FORWARD}::test_the_output_layer_runs_once_a_sequence",),
    ),
    Mutant(
        "8",
        "input embedding streamed as a product",
        "src/rooflinekit/operators/forward.py",
        "precision, copy_bytes(1, hidden, tables * size, size))",
        "precision, copy_bytes(1, hidden, tables * size, size), hidden * (model.vocabulary or 0) * size)",
        (f"{FORWARD}::test_a_decode_step_reads_every_parameter_but_the_rows_it_does_not_gather",),
    ),
    Mutant(
        "8",
        "tied table never read",
        "src/rooflinekit/operators/forward.py",
        "weights = matmul_weight_bytes(hidden, vocabulary, size) +",
        "weights = matmul_weight_bytes(hidden, vocabulary, size) * (not model.tied_embeddings) +",
        (f"{FORWARD}::test_a_tied_table_is_read_once_as_the_output_layer_and_never_as_the_embedding",),
    ),
    Mutant(
        "9",
        "gated MLP counted as two matrices",
        "src/rooflinekit/specs/feedforward.py",
        "columns = self.intermediate_size * (2 if self.gated else 1)",
        "columns = self.intermediate_size",
        (f"{COUNTS}::test_recount_equals_the_literal", f"{FORWARD}::test_counts_by_hand"),
    ),
    Mutant(
        "12",
        "TFLOPS with structured sparsity stored as dense",
        "hardware_db/nvidia/h100-sxm-80gb.yaml",
        "bf16: 989.4",
        "bf16: 1979",
        (f"{LINTER}[h100-sxm-80gb]",),
    ),
    Mutant(
        "13",
        "FP16-accumulate rate taken for BF16",
        "hardware_db/nvidia/rtx-4090.yaml",
        "bf16: 165.2",
        "bf16: 330.3",
        (f"{LINTER}[rtx-4090]",),
    ),
    Mutant(
        "14",
        "GB/s read as GiB/s",
        "src/rooflinekit/specs/device.py",
        "return self.datasheet.bandwidth_gb_per_s * units.GIGA",
        "return self.datasheet.bandwidth_gb_per_s * units.GIB",
        (f"{CATALOG}::test_bandwidth_is_decimal_and_capacity_binary",),
    ),
    Mutant(
        "14",
        "GiB of memory stored as decimal GB",
        "hardware_db/nvidia/h100-sxm-80gb.yaml",
        "memory_gib: 80\n",
        "memory_gib: 85.9\n",
        (f"{LINTER}[h100-sxm-80gb]",),
    ),
    Mutant(
        "15",
        "devices found by substring",
        "src/rooflinekit/specs/catalog.py",
        'if normalise(identifier).startswith(f"{words}-")]',
        "if words in normalise(identifier)]",
        (f"{CATALOG}::test_a_part_of_a_name_is_no_name",),
    ),
    Mutant(
        "15",
        "first of several SKUs taken",
        "src/rooflinekit/specs/catalog.py",
        "    if len(found) == 1:\n",
        "    if found:\n",
        (f"{CATALOG}::test_a_name_of_several_devices_lists_them",),
    ),
    Mutant(
        "16",
        "causal attention counted as the full square",
        "src/rooflinekit/operators/attention.py",
        "return new_tokens * context_tokens + new_tokens * (new_tokens + 1.0) / 2.0",
        "return new_tokens * context_tokens + new_tokens * new_tokens",
        (f"{FORMULAS}::test_scores_equal_the_sum_over_tokens", f"{PROPERTIES}::test_chunks_sum_to_the_whole_prompt"),
    ),
    Mutant(
        "17",
        "KV charged twice",
        "src/rooflinekit/operators/forward.py",
        '"kv_bytes": {rows: mixer.read_per_token * precision.kv_bytes',
        '"kv_bytes": {rows: 2.0 * mixer.read_per_token * precision.kv_bytes',
        (f"{PROPERTIES}::test_kv_read_is_kv_bytes_per_token_times_context_and_new",),
    ),
    Mutant(
        "17",
        "KV charged at the final length for every step",
        "src/rooflinekit/phases/request.py",
        "np.repeat(prompts, passes) + grown",
        "np.repeat(prompts + passes, passes)",
        (f"{DEPLOYMENT}::test_a_request_is_its_prefill_and_the_explicit_sum_of_its_steps",),
    ),
    Mutant(
        "18",
        "weights read once per sequence",
        "src/rooflinekit/operators/forward.py",
        '"weight_bytes": {ONE: weights + shape.bias * precision.value_bytes}',
        '"weight_bytes": {SEQUENCES: weights + shape.bias * precision.value_bytes}',
        (f"{FORWARD}::test_groups_are_summed_and_weights_read_once",),
    ),
    Mutant(
        "18",
        "re-reads of chunks forgotten",
        "src/rooflinekit/operators/attention.py",
        "return new_tokens + context_tokens + 0.0",
        "return new_tokens + context_tokens * np.equal(new_tokens, 1)",
        (f"{PROPERTIES}::test_chunks_sum_to_the_whole_prompt", f"{FORMULAS}::test_rows_equal_the_union_over_tokens"),
    ),
    Mutant(
        "23b",
        "two attention laws that jump between one and two new tokens",
        "src/rooflinekit/operators/attention.py",
        "return new_tokens + context_tokens + 0.0",
        "return (new_tokens + context_tokens) * np.where(np.greater(new_tokens, 1), 2.0, 1.0)",
        (f"{PROPERTIES}::test_from_one_to_two_new_tokens_no_operator_jumps",),
    ),
)


def copy_checkout(place: Path) -> None:
    """Copy what the tests read."""
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, place / part)


def run_tests(place: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests of the copy, on the code of the copy, up to the first failure: pytest's status and its output."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=line", *tests]
    environment = {**os.environ, "PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def applied(mutant: Mutant, place: Path) -> str:
    """Apply the patch to the copy, and return the file's text before."""
    path = place / mutant.file
    before = path.read_text(encoding="utf-8")
    if before.count(mutant.old) != 1:
        message = f"{mutant.number}: {mutant.file} holds {mutant.old!r} {before.count(mutant.old)} times, expected once"
        raise ValueError(message)
    path.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
    return before


def killer(mutant: Mutant, place: Path) -> str | None:
    """Apply the mistake, and return the first test that fails; None if none does. The copy is sound again after."""
    before = applied(mutant, place)
    try:
        status, output = run_tests(place, mutant.killers)
    finally:
        (place / mutant.file).write_text(before, encoding="utf-8")
    if status not in (0, FAILED):
        message = f"{mutant.number} ({mutant.mistake}): pytest ended with status {status}:\n{output}"
        raise RuntimeError(message)
    failed = re.search(r"^FAILED (\S+(?: \S+)*?)(?: - |$)", output, re.MULTILINE)
    return failed[1] if failed else None


def main(numbers: Sequence[str]) -> int:
    """Try the mutants of these numbers, or all, and print one line for each."""
    chosen = [mutant for mutant in MUTANTS if not numbers or mutant.number in numbers]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        copy_checkout(place)
        status, output = run_tests(place, sorted({test for mutant in chosen for test in mutant.killers}))
        if status:
            print(f"red before any mistake was made:\n{output}")
            return 2
        for mutant in chosen:
            try:
                test = killer(mutant, place)
            except (ValueError, RuntimeError) as error:
                print(error)
                return 2
            survivors += test is None
            print(f"{mutant.number:>4}  {mutant.mistake}: {f'killed by {test}' if test else 'SURVIVED'}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mistakes noticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
