"""What a mutant is, and the files that mutants patch and the tests that notice, by short names."""

from typing import NamedTuple


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
