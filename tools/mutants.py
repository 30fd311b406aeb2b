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
PARTS = ("src", "hardware_db", "model_configs", "tests", "examples", "pyproject.toml")
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
MIXTURES, LATENT = "tests/operators/test_mixtures.py", "tests/operators/test_latent.py"
RECURRENT, CACHE = "tests/operators/test_recurrent.py", "tests/reference/test_kv_cache.py"
CONFIGS, REFUSALS = "tests/specs/huggingface/test_configs.py", "tests/specs/huggingface/test_refusals.py"
SIZES = "tests/reference/test_stored_sizes.py"
SPECS, READERS = "src/rooflinekit/specs", "src/rooflinekit/specs/huggingface"
ROWS = "src/rooflinekit/operators/forward"
FIT, CALIBRATE = "tests/calibration/test_fit.py", "tests/calibration/test_calibrate.py"
ENTRIES, CHOICE = "tests/calibration/test_entries.py", "tests/roofline/test_laws.py"
CALIBRATION, LAWS = "src/rooflinekit/calibration", "src/rooflinekit/roofline/laws.py"
FORMATS, BENCH = "src/rooflinekit/measurements/formats", "tests/measurements/test_llama_bench.py"
OFFLINE, OLLAMA = "tests/measurements/test_vllm_offline.py", "tests/measurements/test_ollama.py"
COMPARE, DIAGNOSE = "tests/calibration/test_compare.py", "tests/calibration/test_diagnose.py"
LAYOUTS, COLLECTIVES = "tests/phases/test_layouts.py", "tests/operators/test_collectives.py"
SERVING, SERVED = "src/rooflinekit/serving", "tests/serving"
STEADY, SIMULATED = f"{SERVED}/test_steady_state.py", f"{SERVED}/test_simulate.py"
POOLS, SPLIT = f"{SERVED}/test_pools.py", f"{SERVED}/test_disaggregation.py"
CAPACITY = f"{SERVED}/test_capacity.py"
LINTER = "tests/specs/test_hardware_db.py::test_every_shipped_device_passes_the_linter"

MUTANTS = (
    Mutant(
        "1",
        "KV counted for query heads",
        "src/rooflinekit/specs/mixers/grouped.py",
        "return self.kv_heads * (self.head_dim + self.value_width)",
        "return self.heads * (self.head_dim + self.value_width)",
        (f"{FORWARD}::test_a_step_reads_kv_for_kv_heads_only", f"{FORWARD}::test_counts_by_hand"),
    ),
    Mutant(
        "2",
        "head width taken as hidden / heads",
        "src/rooflinekit/specs/mixers/grouped.py",
        "query, key, value = self.heads * self.head_dim,",
        "query, key, value = hidden_size,",
        (f"{COUNTS}::test_recount_equals_the_literal",),
    ),
    Mutant(
        "3",
        "a latent cached twice, as K and V are",
        f"{SPECS}/mixers/latent.py",
        "return self.kv_rank + self.rope_dim",
        "return 2 * (self.kv_rank + self.rope_dim)",
        (f"{CACHE}::test_bytes_per_token", f"{LATENT}::test_every_step_reads_the_latents_of_its_context_once"),
    ),
    Mutant(
        "3",
        "latent attention cached as K and V of every head",
        f"{SPECS}/mixers/latent.py",
        "return self.kv_rank + self.rope_dim",
        "return self.heads * (self.nope_dim + self.rope_dim + self.value_dim)",
        (f"{CACHE}::test_bytes_per_token",),
    ),
    Mutant(
        "3",
        "latents read once for each head",
        f"{ROWS}/latent.py",
        '"kv_bytes": {rows: mixer.cached_per_token * precision.kv_bytes},\n        "kv_row_bytes"',
        '"kv_bytes": {rows: mixer.heads * mixer.cached_per_token * precision.kv_bytes},\n        "kv_row_bytes"',
        (f"{LATENT}::test_counts_by_hand",),
    ),
    Mutant(
        "3",
        "a latent divided among tensor-parallel ranks",
        f"{SPECS}/mixers/latent.py",
        'update=part(self, "heads", degree))',
        'update=part(self, "heads", degree) | part(self, "kv_rank", degree))',
        (f"{COLLECTIVES}::test_a_latent_is_copied_to_every_rank",),
    ),
    Mutant(
        "4",
        "windowed layers cached at full length",
        f"{SPECS}/mixers/grouped.py",
        "return self.window",
        "return None",
        (f"{CACHE}::test_parts_of_the_cache", f"{CACHE}::test_cache_of_a_sequence"),
    ),
    Mutant(
        "4",
        "windowed layers left out of the cache",
        "src/rooflinekit/phases/memory.py",
        "        if each:",
        "        if each and mixer.view is None:",
        (f"{CACHE}::test_parts_of_the_cache",),
    ),
    Mutant(
        "4",
        "windowed layers read at full length",
        f"{ROWS}/features.py",
        "return rows_read(group.new, group.context, feature.window)",
        "return rows_read(group.new, group.context)",
        (f"{FORWARD}::test_counts_of_windowed_layers_by_hand",),
    ),
    Mutant(
        "4",
        "a view of one chunk taken for a sliding window",
        f"{ROWS}/grouped.py",
        'form = "chunked" if mixer.chunked else ""',
        'form = ""',
        (f"{MIXTURES}::test_chunks_of_llama_4_scout_by_brute_force",),
    ),
    Mutant(
        "5",
        "recurrent layers given K and V",
        f"{SPECS}/mixers/base.py",
        'adds to the cache."""\n        return 0\n',
        'adds to the cache."""\n        return 2048\n',
        (f"{CACHE}::test_bytes_per_token", f"{RECURRENT}::test_recurrent_layers_add_nothing_to_the_cache"),
    ),
    Mutant(
        "5",
        "states that grow with the prompt",
        f"{ROWS}/recurrent.py",
        '"state_bytes": {SEQUENCES: state}',
        '"state_bytes": {TOKENS: state}',
        (f"{RECURRENT}::test_a_pass_reads_and_writes_every_state_once_a_sequence",),
    ),
    Mutant(
        "5",
        "states left out of the cache",
        "src/rooflinekit/phases/memory.py",
        "state += run.times *",
        "state += 0 * run.times *",
        (f"{CACHE}::test_parts_of_the_cache",),
    ),
    Mutant(
        "6",
        "KV dtype taken from the weight dtype",
        "src/rooflinekit/phases/resolve.py",
        "choices.kv_cache or scheme.kv_cache or dtype",
        'choices.kv_cache or scheme.kv_cache or ("fp8" if held.bits <= 9 else dtype)',
        (f"{DEPLOYMENT}::test_the_cache_dtype_does_not_follow_the_weights",),
    ),
    Mutant(
        "7",
        "output layer run on every prompt position",
        "src/rooflinekit/operators/forward/plan.py",
        '"flops": {SAMPLED: matmul_flops(1, hidden, vocabulary)}',
        '"flops": {TOKENS: matmul_flops(1, hidden, vocabulary)}',
        (f"{FORWARD}::test_the_output_layer_runs_once_a_sequence",),
    ),
    Mutant(
        "8",
        "input embedding streamed as a product",
        "src/rooflinekit/operators/forward/plan.py",
        "precision, {TOKENS: copy_bytes(1, hidden, tables * size, size)})",
        "precision, {TOKENS: copy_bytes(1, hidden, tables * size, size)}, weights=hidden * (model.vocabulary or 0))",
        (f"{FORWARD}::test_a_step_reads_every_parameter_but_the_rows_it_does_not_gather",),
    ),
    Mutant(
        "8",
        "tied table never read",
        "src/rooflinekit/operators/forward/plan.py",
        "weights = matmul_weight_bytes(hidden, vocabulary, each) +",
        "weights = matmul_weight_bytes(hidden, vocabulary, each) * (not model.tied_embeddings) +",
        (f"{FORWARD}::test_a_tied_table_is_read_once_as_the_output_layer_and_never_as_the_embedding",),
    ),
    Mutant(
        "9",
        "gated MLP counted as two matrices",
        "src/rooflinekit/specs/feedforwards/dense.py",
        "columns = width * len(names)",
        "columns = width",
        (f"{COUNTS}::test_recount_equals_the_literal", f"{FORWARD}::test_counts_by_hand"),
    ),
    Mutant(
        "10",
        "all experts read by every step",
        f"{ROWS}/feedforward.py",
        '"weight_bytes": {touched: each}',
        '"weight_bytes": {ONE: each * block.experts}',
        (f"{MIXTURES}::test_one_token_reads_its_own_experts_exactly",),
    ),
    Mutant(
        "10",
        "the experts of one token read whatever the batch",
        f"{ROWS}/feedforward.py",
        '"weight_bytes": {touched: each}',
        '"weight_bytes": {ONE: each * block.experts_per_token}',
        (f"{MIXTURES}::test_a_step_reads_the_experts_that_its_tokens_touch",),
    ),
    Mutant(
        "10",
        "every token through all experts, as in a dense layer",
        f"{ROWS}/feedforward.py",
        '"flops": {TOKENS: matmul_flops(chosen, matrices, 1)}',
        '"flops": {TOKENS: matmul_flops(block.experts, matrices, 1)}',
        (f"{FORWARD}::test_linear_layers_do_two_operations_an_active_parameter_and_token",),
    ),
    Mutant(
        "10",
        "no two tokens share an expert",
        "src/rooflinekit/operators/moe.py",
        "experts * _touched(tokens, experts_per_token / experts)",
        "np.minimum(tokens * experts_per_token, experts)",
        (f"{MIXTURES}::test_uniform_routing_is_the_mean_over_all_choices",),
    ),
    Mutant(
        "10",
        "shared experts ignored",
        f"{SPECS}/feedforwards/mixture.py",
        ", *self._shared(hidden_size)",
        "",
        (f"{COUNTS}::test_recount_equals_the_literal", f"{MIXTURES}::test_counts_of_one_token_by_hand"),
    ),
    Mutant(
        "10",
        "a rank's tokens taken to choose among its own experts alone",
        f"{ROWS}/feedforward.py",
        "detail = (float(experts), float(chosen), skew)",
        "detail = (float(block.held), float(chosen), skew)",
        (f"{COLLECTIVES}::test_experts_that_a_rank_reads",),
    ),
    Mutant(
        "10",
        "experts of a rank given the tokens of one attention group",
        f"{ROWS}/collectives.py",
        'one if one.op_class == "mixture" or',
        'one if one.op_class == "collective" and',
        (f"{COLLECTIVES}::test_experts_see_the_tokens_of_all_attention_groups",),
    ),
    Mutant(
        "11",
        "leading dense layers taken for mixtures",
        f"{READERS}/families/blocks.py",
        '"moe" if index >= first and index % period == 0 else "dense"',
        '"moe" if index % period == 0 else "dense"',
        (f"{CONFIGS}::test_parameters",),
    ),
    Mutant(
        "11",
        "interleaved dense layers taken for mixtures",
        f"{READERS}/families/mixtures.py",
        "range(step - 1, layers, step) if listed is None else listed",
        "range(layers)",
        (f"{CONFIGS}::test_parameters",),
    ),
    Mutant(
        "11",
        "the width of a dense layer taken for that of an expert",
        f"{READERS}/families/mixtures.py",
        'each = config.count("moe_intermediate_size")\n    moe = mixture_block(config, family, each, shared_width(',
        'each = config.count("intermediate_size")\n    moe = mixture_block(config, family, each, shared_width(',
        (f"{CONFIGS}::test_parameters",),
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
        "src/rooflinekit/operators/forward/grouped.py",
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
        "src/rooflinekit/operators/forward/rows.py",
        '"weight_bytes": {ONE: weights + shape.bias * precision.value_bytes}',
        '"weight_bytes": {Feature("sequences"): weights + shape.bias * precision.value_bytes}',
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
        "18",
        "a feed-forward read whole by every rank",
        f"{SPECS}/feedforwards/dense.py",
        'return self.model_copy(update=part(self, "intermediate_size", degree))',
        "return self",
        (f"{COLLECTIVES}::test_weights_are_read_once_a_pass_by_every_rank",),
    ),
    Mutant(
        "18",
        "a prompt divided among attention groups",
        f"{ROWS}/features.py",
        "np.ceil(np.divide(sequences, shards))",
        "np.divide(sequences, shards)",
        (f"{COLLECTIVES}::test_a_prompt_is_not_divided_among_attention_groups",),
    ),
    Mutant(
        "18",
        "re-reads forgotten by a server's chunks",
        f"{SERVING}/simulate.py",
        "(chunk.new, chunk.job.held, float(chunk.last))",
        "(chunk.new, 0.0, float(chunk.last))",
        (f"{SIMULATED}::test_chunks_of_a_long_prompt",),
    ),
    Mutant(
        "18",
        "re-reads forgotten by the closed form's chunks",
        f"{SERVING}/loaded_steps.py",
        "[none, held + index * room, whole * held,",
        "[none, held + 0.0 * index, whole * held,",
        (f"{STEADY}::test_a_first_token_under_load_waits",),
    ),
    Mutant(
        "19",
        "4-bit weights given 4-bit arithmetic",
        f"{SPECS}/precision.py",
        'WeightFormat("int4", 4 + 20 / 128, None,',
        'WeightFormat("int4", 4 + 20 / 128, "int4",',
        (f"{DEPLOYMENT}::test_formats_with_narrow_arithmetic_are_these_and_no_others",),
    ),
    Mutant(
        "19",
        "every format computes at the width it is stored in",
        f"{SPECS}/precision.py",
        "return self.compute or form.arithmetic or self.dtype",
        'return self.compute or form.arithmetic or ("fp4" if form.bits < 5 else self.dtype)',
        (f"{MIXTURES}::test_the_experts_of_gpt_oss_are_mxfp4_and_all_else_16_bits",),
    ),
    Mutant(
        "20",
        "exclude lists ignored",
        f"{SPECS}/quantisation.py",
        "return self.by_rule(path) or self.default",
        "return self.default",
        (f"{MIXTURES}::test_layers_left_out_by_their_index_stay_at_16_bits", f"{SIZES}::test_stored_size"),
    ),
    Mutant(
        "20",
        "routers quantised with the rest",
        f"{ROWS}/rows.py",
        "choose = precision.format_by_rule if shape.plain else precision.format_of",
        "choose = precision.format_of",
        (f"{MIXTURES}::test_every_linear_layer_of_deepseek_v3_is_fp8_but_router_and_output",),
    ),
    Mutant(
        "20",
        "scales of AWQ and GPTQ not counted",
        f"{SPECS}/precision.py",
        'WeightFormat("int4", 4 + 20 / 128, None,',
        'WeightFormat("int4", 4, None,',
        (f"{FORWARD}::test_quantised_weights_shrink_the_blocks_matrices_alone",),
    ),
    Mutant(
        "20",
        "scales of MXFP4 not counted",
        f"{SPECS}/precision.py",
        'WeightFormat("mxfp4", 4.25,',
        'WeightFormat("mxfp4", 4.0,',
        (f"{MIXTURES}::test_the_experts_of_gpt_oss_are_mxfp4_and_all_else_16_bits",),
    ),
    Mutant(
        "21",
        "one cache held against the memory of all devices",
        "src/rooflinekit/phases/memory.py",
        "if weights + worst <= memory:",
        "if weights + worst <= memory * deployment.layout.devices:",
        (f"{LAYOUTS}::test_memory_is_checked_on_every_device",),
    ),
    Mutant(
        "21",
        "sequences of all attention groups held by each",
        "src/rooflinekit/phases/settled.py",
        "if self.layout.data_parallel_attention > 1:\n            many",
        "if self.layout.data_parallel_attention > 99:\n            many",
        (f"{LAYOUTS}::test_attention_groups_hold_their_own_sequences",),
    ),
    Mutant(
        "21",
        "a sequence spread over attention groups as over one pool",
        "src/rooflinekit/phases/settled.py",
        "amount(np.ceil(np.divide(many, self.layout.data_parallel_attention)))",
        "amount(np.divide(many, self.layout.data_parallel_attention))",
        (f"{LAYOUTS}::test_attention_groups_hold_their_own_sequences",),
    ),
    Mutant(
        "21",
        "memory of all GPUs divided by the blocks of one",
        f"{SERVING}/capacity.py",
        "return self.pages.blocks(self.pool_bytes)",
        "return self.pages.blocks(self.pool_bytes * self.share.gpus)",
        (f"{CAPACITY}::test_everything_is_per_gpu",),
    ),
    Mutant(
        "21",
        "requests counted once for every GPU that shares them",
        f"{SERVING}/capacity.py",
        "self.share.engines * self.blocks / self._taken(lengths)",
        "self.share.gpus * self.blocks / self._taken(lengths)",
        (
            f"{CAPACITY}::test_everything_is_per_gpu",
            f"{CAPACITY}::test_hybrids_print_what_their_logs_print",
        ),
    ),
    Mutant(
        "21",
        "the peak of a pass taken once from the memory of all GPUs",
        f"{SERVING}/pool.py",
        "return activation_bytes(self.profile, self.share, self.limits)",
        "return activation_bytes(self.profile, self.share, self.limits) / self.share.gpus",
        (f"{CAPACITY}::test_every_gpu_has_a_peak_of_its_own",),
    ),
    Mutant(
        "22",
        "messages without a latency",
        "src/rooflinekit/roofline/communication.py",
        "collective_time(wire, self.latency_s * launches, self.join)",
        "collective_time(wire, 0.0 * launches, self.join)",
        (f"{LAYOUTS}::test_messages_have_a_latency",),
    ),
    Mutant(
        "22",
        "layers that send nothing",
        f"{ROWS}/collectives.py",
        "if self.layout.devices == self.layout.pipeline_parallel:",
        "if self.layout.devices:",
        (f"{COLLECTIVES}::test_messages_by_hand",),
    ),
    Mutant(
        "22",
        "norms over all heads without a sum among ranks",
        f"{ROWS}/collectives.py",
        "if run.mixer.shared_norms and self.layout.tensor_parallel > 1:",
        "if run.mixer.shared_norms and not self.layout.tensor_parallel:",
        (f"{COLLECTIVES}::test_norms_over_all_heads_are_summed_among_ranks",),
    ),
    Mutant(
        "22",
        "K and V sent to other GPUs without a latency",
        f"{SERVING}/kv_link.py",
        "return self.latency_s + queue_wait_s(",
        "return queue_wait_s(",
        (
            f"{POOLS}::test_sending_a_prompt",
            f"{SPLIT}::test_the_transfer_by_hand",
        ),
    ),
    Mutant(
        "22",
        "K and V on other GPUs for nothing",
        f"{SERVING}/split.py",
        "work.prefill.first_token_s(rate_per_s / readers) + sent_s",
        "work.prefill.first_token_s(rate_per_s / readers)",
        (f"{SPLIT}::test_both_arrangements_by_hand",),
    ),
    Mutant(
        "22",
        "a link that carries any load",
        f"{SERVING}/split.py",
        "self.lanes(readers) / wire if wire else inf",
        "inf if wire else inf",
        (f"{SPLIT}::test_the_split_carries_what_its_narrowest_part_does",),
    ),
    Mutant(
        "23",
        "an efficiency above 1 of the datasheet's peak accepted from a fit",
        f"{CALIBRATION}/fit.py",
        "if value > np.exp(slack):",
        "if value > np.exp(slack) + 1.0:",
        (f"{FIT}::test_a_fraction_above_1_is_refused", f"{FIT}::test_what_is_physical_on_a_gb10"),
    ),
    Mutant(
        "23",
        "a fraction above 1 clipped in silence",
        f"{CALIBRATION}/fit.py",
        "TRIED = 1.3",
        "TRIED = 1.0",
        (f"{FIT}::test_a_fraction_above_1_is_refused",),
    ),
    Mutant(
        "23",
        "a fit that is never checked",
        f"{CALIBRATION}/fit.py",
        "if checked and _at_its_peak(",
        "if not checked and _at_its_peak(",
        (f"{FIT}::test_a_fraction_above_1_is_refused", f"{FIT}::test_a_ceiling_that_no_device_has_is_refused"),
    ),
    Mutant(
        "23",
        "a fitted ceiling above every direct measurement accepted",
        f"{CALIBRATION}/fit.py",
        "not BELOW * direct <= value <= ABOVE * direct",
        "value < BELOW * direct",
        (f"{FIT}::test_what_is_physical_on_a_gb10",),
    ),
    Mutant(
        "23",
        "a fitted ceiling far below every direct measurement accepted",
        f"{CALIBRATION}/fit.py",
        "ABOVE, BELOW = 1.1, 0.4",
        "ABOVE, BELOW = 1.1, 0.0",
        (f"{FIT}::test_what_is_physical_on_a_gb10", f"{FIT}::test_a_ceiling_that_no_device_has_is_refused"),
    ),
    Mutant(
        "23",
        "direct reads of memory not looked at",
        f"{CALIBRATION}/fit.py",
        'return _best(device, "memory_read_gb_per_s", device.datasheet.bandwidth_gb_per_s)',
        "return None",
        (f"{FIT}::test_what_is_physical_on_a_gb10", f"{FIT}::test_direct_fractions_are_of_the_datasheet"),
    ),
    Mutant(
        "23",
        "kernels of a user's file fitted without a check",
        f"{CALIBRATION}/ordered.py",
        "stage.free, prior=KERNEL_PRIOR)",
        "stage.free, prior=KERNEL_PRIOR, checked=False)",
        (f"{CALIBRATE}::test_kernels_that_are_too_fast_are_refused",),
    ),
    Mutant(
        "23",
        "passes faster than the floor fitted",
        f"{CALIBRATION}/ordered.py",
        "faster = one.seconds < one.floor_s",
        "faster = one.seconds < 0.0 * one.floor_s",
        (f"{CALIBRATE}::test_steps_below_the_floor_are_refused",),
    ),
    Mutant(
        "23",
        "passes that press a ceiling to its limit and are still missed accepted",
        f"{CALIBRATION}/ordered.py",
        "if beyond and (not constants or found.residual > ROBUST):",
        "if False:",
        (f"{CALIBRATE}::test_passes_that_no_physical_constant_meets_are_refused",),
    ),
    Mutant(
        "23",
        "a file that holds an efficiency above 1 read",
        f"{SPECS}/spec.py",
        "Fraction = Annotated[float, Field(gt=0, le=1)",
        "Fraction = Annotated[float, Field(gt=0, le=2)",
        (f"{ENTRIES}::test_a_file_cannot_hold_a_fraction_above_1",),
    ),
    Mutant(
        "23b",
        "two attention laws that jump between one and two new tokens",
        "src/rooflinekit/operators/attention.py",
        "return new_tokens + context_tokens + 0.0",
        "return (new_tokens + context_tokens) * np.where(np.greater(new_tokens, 1), 2.0, 1.0)",
        (f"{PROPERTIES}::test_from_one_to_two_new_tokens_no_operator_jumps",),
    ),
    Mutant(
        "23b",
        "latent attention expanded for any two new tokens",
        f"{ROWS}/features.py",
        "return np.asarray(more <= row_expanded * (group.new + group.context))",
        "return np.asarray((group.new == 1) & (more > 0))",
        (f"{LATENT}::test_from_one_to_two_new_tokens_nothing_jumps",),
    ),
    Mutant(
        "23c",
        "one efficiency for a chip whatever the engine",
        LAWS,
        "exact = [entry for entry in entries if entry.engine == engine]",
        "exact = list(entries)",
        (f"{CHOICE}::test_the_nearest_entry_leads", f"{ENTRIES}::test_an_engine_and_format_have_their_own_entry"),
    ),
    Mutant(
        "23c",
        "one efficiency for a chip whatever the format",
        LAWS,
        "return [one for one in entries if one.format == wanted] or",
        "return list(entries) or",
        (f"{CHOICE}::test_the_nearest_entry_leads", f"{ENTRIES}::test_an_engine_and_format_have_their_own_entry"),
    ),
    Mutant(
        "23c",
        "another engine's entry taken as one's own, in silence",
        LAWS,
        'yield "other engine on this device", own',
        'yield "own", own',
        (f"{CHOICE}::test_the_nearest_entry_leads",),
    ),
    Mutant(
        "23c",
        "measurements of several engines fitted together",
        f"{CALIBRATION}/inputs.py",
        "lambda name: not name or stem(name) == stem(engine)",
        "lambda name: bool(stem(name)) or True",
        (f"{CALIBRATE}::test_rates_of_other_devices_engines_and_formats_are_counted",),
    ),
    Mutant(
        "23c",
        "measurements of several formats fitted together",
        f"{CALIBRATION}/inputs.py",
        'table["kind"] == form,',
        'table["kind"] != "",',
        (f"{CALIBRATE}::test_rates_of_other_devices_engines_and_formats_are_counted",),
    ),
    Mutant(
        "23c",
        "a calibration kept for every engine and format of the device",
        f"{CALIBRATION}/calibrate.py",
        '"engine": inputs.engine, "format": inputs.format,',
        '"engine": None, "format": "bf16",',
        (f"{CALIBRATE}::test_rates_of_other_devices_engines_and_formats_are_counted",),
    ),
    Mutant(
        "24",
        "unknown config keys dropped in silence",
        f"{READERS}/assumptions.py",
        "if not _assumes(inner, name, assumed)]",
        "if _assumes(inner, name, assumed)]",
        (f"{REFUSALS}::test_a_key_that_may_change_a_count_refuses_the_file",),
    ),
    Mutant(
        "24",
        "an unknown type of model read as the nearest dense one",
        f"{READERS}/choice.py",
        "else _unknown(outer, inner, stated)",
        'else "llama"',
        (f"{REFUSALS}::test_an_unknown_type_is_told_the_nearest",),
    ),
    Mutant(
        "25",
        "a test of prompt and output read as output alone",
        f"{FORMATS}/llama_bench.py",
        'return "total_tokens_per_s"',
        'return "output_tokens_per_s"',
        (f"{BENCH}::test_a_mixed_test_is_neither_phase",),
    ),
    Mutant(
        "25",
        "tokens per second of vLLM's throughput, prompts and all, taken for output",
        f"{FORMATS}/vllm_throughput.py",
        '"tokens_per_second": "total_tokens_per_s"',
        '"tokens_per_second": "output_tokens_per_s"',
        (f"{OFFLINE}::test_each_figure_is_the_files_own",),
    ),
    Mutant(
        "25",
        "a rate of prompt and output compared with a decode step",
        f"{CALIBRATION}/compare.py",
        '"output_tokens_per_s": _decode_rate,',
        '"output_tokens_per_s": _decode_rate, "total_tokens_per_s": lambda one, *rest: _token(one, *rest),',
        (f"{COMPARE}::test_prompt_and_output_tokens_are_never_added",),
    ),
    Mutant(
        "26",
        "Ollama's first token counted as a decode step",
        f"{FORMATS}/ollama.py",
        "count=run.output_tokens - 1",
        "count=run.output_tokens",
        (f"{OLLAMA}::test_values",),
    ),
    Mutant(
        "26",
        "llama-server's first token counted as a decode step",
        f"{FORMATS}/llama_server.py",
        "count=None if drafted else tokens - 1",
        "count=None if drafted else tokens",
        ("tests/measurements/test_llama_server.py::test_values",),
    ),
    Mutant(
        "26",
        "GuideLLM's time per output token taken for vLLM's",
        f"{FORMATS}/guidellm.py",
        '"time_per_output_token_ms": ("request_per_token_s", MILLI)',
        '"time_per_output_token_ms": ("time_per_output_token_s", MILLI)',
        (f"{COMPARE}::test_tpot_is_mapped_by_tool",),
    ),
    Mutant(
        "26",
        "a whole request over its tokens compared with a decode step",
        f"{CALIBRATION}/compare.py",
        '"request_per_token_s": _per_token,',
        '"request_per_token_s": _token,',
        (f"{COMPARE}::test_b27_both_definitions_of_tpot",),
    ),
    Mutant(
        "27",
        "the first token under load taken for a prefill",
        f"{SERVING}/steady_state.py",
        "first = model.profile.request_host_s + wait.mean_s + steps.own_s",
        "first = model.profile.request_host_s + steps.own_s",
        (f"{STEADY}::test_a_first_token_under_load_waits",),
    ),
    Mutant(
        "27",
        "percentiles of the first token without a wait",
        f"{SERVING}/steady_state.py",
        "request_host_s + steps.own_s + rest)",
        "request_host_s + steps.own_s + 0.0 * rest)",
        (f"{STEADY}::test_a_first_token_under_load_waits",),
    ),
    Mutant(
        "27",
        "requests that start together given the wait of those that come one by one",
        f"{SERVING}/steady_state.py",
        "_burst(model, load, now.steps, running) +",
        "now.time_to_first_token_s +",
        (f"{STEADY}::test_requests_that_start_together_wait_for_each_other",),
    ),
    Mutant(
        "27",
        "the host's time for a request left out of the first token",
        f"{SERVING}/steady_state.py",
        "first = model.profile.request_host_s + wait.mean_s",
        "first = wait.mean_s",
        (f"{STEADY}::test_a_first_token_under_load_waits",),
    ),
    Mutant(
        "27",
        "a first token counted from where its request is admitted",
        f"{SERVING}/simulate.py",
        "prompts = [(chunk.new,",
        "_ = [setattr(one.job, 'arrived_s', self.clock_s) for one in chunks if not one.job.held]\n"
        "        prompts = [(chunk.new,",
        (f"{SIMULATED}::test_a_first_token_counts_from_the_arrival", f"{SIMULATED}::test_a_queue_forms"),
    ),
    Mutant(
        "27",
        "a first token counted from where the server looks up",
        f"{SERVING}/simulate.py",
        "sent = self.clock_s if self.in_flight else request.arrival_s",
        "sent = self.clock_s",
        (f"{SIMULATED}::test_a_first_token_counts_from_the_arrival",),
    ),
    Mutant(
        "27",
        "the host's time for a request left out of a simulation",
        f"{SERVING}/simulate.py",
        "late = self.profile.request_host_s\n",
        "late = 0.0\n",
        (f"{SIMULATED}::test_a_lone_request_with_its_host",),
    ),
    Mutant(
        "27",
        "prompts that do not wait for each other on a GPU of their own",
        f"{SERVING}/pools.py",
        "host + queue_wait_s(self.alone_s, rate_per_s) + self.alone_s",
        "host + self.alone_s",
        (f"{POOLS}::test_a_prefill_worker",),
    ),
    Mutant(
        "27",
        "a ledger without the queue",
        f"{SERVING}/budget.py",
        "max(first - prefill_s, 0.0), min(prefill_s, first)",
        "0.0, min(prefill_s, first)",
        (f"{SERVED}/test_budget.py::test_lines_of_a_loaded_server_add_up_to_what_it_delivers",),
    ),
    Mutant(
        "27",
        "an overloaded server given a time to first token",
        f"{SERVING}/serve.py",
        "self.rate is not None and self.rate > self.most\n",
        "self.rate is not None and self.rate > np.inf\n",
        (f"{SERVED}/test_serve.py::test_overload_is_said_and_not_a_huge_number",),
    ),
    Mutant(
        "28",
        "a measurement faster than the floor compared as any other",
        f"{CALIBRATION}/compare.py",
        "return self.measured_s < self.floor_s",
        "return self.measured_s < 0.0 * self.floor_s",
        (f"{COMPARE}::test_faster_than_the_floor_is_a_fault",),
    ),
    Mutant(
        "28",
        "a step below its floor that other figures contradict diagnosed as usual",
        f"{CALIBRATION}/diagnose.py",
        "if any(one.observed < _BELOW * one.floor for one in symptoms):",
        "if not symptoms:",
        (f"{DIAGNOSE}::test_one_time_below_its_floor",),
    ),
    Mutant(
        "28",
        "a rate above a measured ceiling called a fault",
        f"{CALIBRATION}/compare_kernels.py",
        'if one.ceilings.described == "measured":',
        'if one.ceilings.described == "datasheet":',
        ("tests/calibration/test_compare_kernels.py::test_a_rate_above_a_measured_ceiling_is_no_fault",),
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
    known = list(dict.fromkeys(mutant.number for mutant in MUTANTS))
    unknown = [number for number in numbers if number not in known]
    if unknown:
        print(f"{', '.join(unknown)}: expected numbers of docs/mistakes.md that have mutants: {', '.join(known)}")
        return 2
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
