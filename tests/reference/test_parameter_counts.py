"""Parameter counts of the shipped models against counts that do not come from our own arithmetic.

Witnesses: the transformers 5.24.0 model class built from the same config without weights (exact; literals of
``parameter_counts.csv``, so that a wrong file and a wrong formula cannot agree by accident), a published total (a
checkpoint's metadata, another implementation, a model card), published active parameters, and literals written here.
Quantised checkpoints without a file of their own are counted through the file of their base.
"""

import csv
from pathlib import Path

import pytest

from rooflinekit import list_models, load_model

MODELS = {name: load_model(name) for name in list_models()}
PUBLISHED = [name for name, model in MODELS.items() if model.published_count]

with (Path(__file__).parent / "parameter_counts.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))
EXACT = [(row["hf_id"], row["id"], int(row["parameters"])) for row in ROWS if row["source"] != "arithmetic"]
#: No transformers class counts these. Eight have a published total as well; the others have no witness but an earlier
#: implementation of the same arithmetic.
OWN = [(row["hf_id"], row["id"], int(row["parameters"])) for row in ROWS if row["source"] == "arithmetic"]
#: Files whose figures come from the config of a quantised sibling with a file of its own.
SAME_SHAPE = {"qwen3.6-27b": "qwen3.6-27b-nvfp4", "qwen3.6-35b-a3b": "qwen3.6-35b-a3b-nvfp4"}

DEEPSEEK_COPIES = 2 * 129_280 * 7_168

#: Published totals that differ: published minus ours, to the last parameter, and why.
DIFFERENCES = {
    "falcon-7b": (65_024 * 4_544, "the checkpoint stores the tied head too"),
    "falcon-180b": (65_024 * 14_848, "the checkpoint stores the tied head too"),
    "qwen3-0.6b": (151_936 * 1_024, "the checkpoint stores the tied head too"),
    "gpt-neo-1.3b": (12 * 2_048**2, "causal masks are stored too"),
    "pythia-1b": (16 * (2_048**2 + 32), "causal masks and rotary frequencies are stored too"),
    "pythia-6.9b": (32 * (2_048**2 + 16), "causal masks and rotary frequencies are stored too"),
    "pythia-12b": (36 * (2_048**2 + 16), "causal masks and rotary frequencies are stored too"),
    "openpangu-embedded-7b": (34 * 128, "stored rotary tables"),
    "opt-125m": (-2 * 768, "keras-hub has two rows of learned positions less"),
    "ernie-4.5-21b-a3b": (-27 * 64, "the transformers class counts the router biases, the file's metadata does not"),
    "dots.llm1": (61 * 128, "router biases"),
    "glm-4.7-flash": (46 * 64, "router biases"),
    "moonlight-16b-a3b": (26 * 64 + 27 * 64, "router biases, and 64 values a layer that nothing names"),
    "kimi-k2": (62_521_648, "block scales and 60 x 384 router biases"),
    "deepseek-v3": (11_610_067_968 + DEEPSEEK_COPIES + 41_555_600, "prediction module, copies, scales, router biases"),
    "deepseek-r1": (11_610_067_968 + DEEPSEEK_COPIES + 41_555_600, "prediction module, copies, scales, router biases"),
    "deepseek-v3.2": (11_624_027_392 + DEEPSEEK_COPIES + 41_606_688, "prediction module, copies, scales, biases"),
    "glm-4.5": (3_988_069_632 + 2 * 151_552 * 5_120 + 90 * 160, "prediction module, its copies, router biases"),
    "glm-5": (9_952_920_320 + 76 * 256, "prediction module, router biases"),
    "mimo-7b": (210_790_400, "the prediction module"),
    "qwen3-next-80b-a3b": (1_650_471_424, "the prediction module"),
    "mimo-v2-flash": (1_006_549_568, "prediction layers that the copy of the config does not name"),
    "qwen3.5-27b": (424_699_392 + 460_730_096, "the prediction module and the vision tower"),
    "qwen3.5-35b-a3b": (844_640_768 + 446_571_248, "the prediction module and the vision tower"),
    "qwen3.5-122b-a10b": (2_523_679_232 + 451_290_864, "the prediction module and the vision tower"),
    "qwen3.5-397b-a17b": (6_595_568_128 + 456_010_480, "the prediction module and the vision tower"),
    "qwen3.5-9b": (456_010_480, "the vision tower"),
    "qwen3.6-27b": (460_730_096, "the vision tower"),
    "qwen3.6-35b-a3b": (446_571_248, "the vision tower"),
    "qwen3-vl-30b-a3b": (538_631_408, "the vision tower"),
    "qwen2.5-vl-7b": (676_550_144, "the vision tower"),
    "gemma-3-4b": (419_816_304, "the vision tower"),
    "gemma-3-12b": (421_290_864, "the vision tower"),
    "gemma-3-27b": (423_060_336, "the vision tower"),
    "llama-4-maverick": (871_932_416, "the vision tower"),
    "llama-4-scout": (1_230_138_880, "the vision tower (871,932,416), rounded to 109B"),
    "command-r": (19_168_768, "the model card rounds to 35B"),
    "dbrx": (403_476_480, "rounded to 132B"),
    "glm-4.5-air": (-852_245_504, "rounded to 106B"),
    "granite-4.0-h-small": (-207_337_984, "rounded to 32B"),
    "granite-4.0-h-tiny": (60_962_752, "rounded to 7B"),
    "hunyuan-a13b": (-393_183_232, "rounded to 80B"),
    "jamba-v0.1": (429_676_672, "rounded to 52B"),
    "minimax-m1": (-89_655_296, "rounded to 456B"),
}

#: Parameters of the prediction module by an earlier implementation; DIFFERENCES confirms eleven of them.
PREDICTION = {
    "deepseek-v3": 11_610_067_968,
    "deepseek-r1": 11_610_067_968,
    "deepseek-v3.2": 11_624_027_392,
    "glm-4.5": 3_988_069_632,
    "glm-4.5-air": 2_375_059_456,
    "glm-5": 9_952_920_320,
    "glm-5.1": 9_952_920_320,
    "glm-5.2": 9_952_920_320,
    "glm-5.1-nvfp4": 9_952_920_320,
    "glm-5.2-nvfp4": 9_952_920_320,
    "mimo-7b": 210_790_400,
    "qwen3-next-80b-a3b": 1_650_471_424,
    "qwen3.5-9b": 243_290_624,
    "qwen3.5-27b": 424_699_392,
    "qwen3.5-35b-a3b": 844_640_768,
    "qwen3.5-122b-a10b": 2_523_679_232,
    "qwen3.5-397b-a17b": 6_595_568_128,
    "qwen3.5-122b-a10b-nvfp4": 2_523_679_232,
    "qwen3.5-397b-a17b-nvfp4": 6_595_568_128,
    "qwen3.6-27b": 424_699_392,
    "qwen3.6-27b-nvfp4": 424_699_392,
    "qwen3.6-35b-a3b": 844_640_768,
    "qwen3.6-35b-a3b-nvfp4": 844_640_768,
}
#: The earlier implementation leaves these out; test_stored_sizes.py confirms that of Super by the size of its files.
FURTHER_PREDICTION = {"nemotron-3-super-120b-a12b", "nemotron-3-ultra-550b-a55b", "nemotron-3.5-lightning-30b-a3b"}
COPIES = {
    "deepseek-v3": DEEPSEEK_COPIES,
    "deepseek-r1": DEEPSEEK_COPIES,
    "deepseek-v3.2": DEEPSEEK_COPIES,
    "glm-4.5": 2 * 151_552 * 5_120,
    "glm-4.5-air": 2 * 151_552 * 4_096,
}

# A published figure is rounded: half a unit of its last digit for whole billions, a whole one for tenths (2.4B is
# nearer to 2.45B than to the next tenth, and DeepSeek's 36.7B is a sum of rounded parts).
WHOLE, TENTH = 0.5e9, 0.1e9
EVERYTHING, NO_EMBEDDING, NO_TABLES = "active", "active_without_embedding", "active_without_tables"
# fmt: off
ACTIVE = [
    # model                        published  tolerance  nearest convention  source
    ("mixtral-8x7b",               12.9e9,    TENTH,     EVERYTHING),    # sammcj/llmfit hf_models.json
    ("mixtral-8x22b",              39.1e9,    TENTH,     EVERYTHING),    # sammcj/llmfit hf_models.json
    ("qwen3-30b-a3b",              3.3e9,     TENTH,     EVERYTHING),    # docs.vllm.ai, vllm-ascend
    ("qwen3-235b-a22b",            22e9,      WHOLE,     EVERYTHING),    # its name
    ("llama-4-scout",              17e9,      WHOLE,     EVERYTHING),    # meta-llama/llama-models MODEL_CARD.md
    ("llama-4-maverick",           17e9,      WHOLE,     EVERYTHING),    # meta-llama/llama-models MODEL_CARD.md
    ("jamba-v0.1",                 12e9,      WHOLE,     EVERYTHING),    # evolution.kevinbytes.com/models/model-jamba
    ("hunyuan-a13b",               13e9,      WHOLE,     EVERYTHING),    # Tencent-Hunyuan/Hunyuan-A13B README.md; tied
    ("granite-4.0-h-small",        9e9,       WHOLE,     EVERYTHING),    # llama-farm/LlamaPajamas; tied
    ("gemma-4-26b-a4b",            4e9,       WHOLE,     EVERYTHING),    # its name; tied
    ("gpt-oss-120b",               5.1e9,     TENTH,     NO_EMBEDDING),  # openai/gpt-oss README.md
    ("gpt-oss-20b",                3.6e9,     TENTH,     NO_EMBEDDING),  # openai/gpt-oss README.md
    ("deepseek-v3",                36.7e9,    TENTH,     NO_EMBEDDING),  # deepseek-ai/DeepSeek-V3 README_WEIGHTS.md
    ("deepseek-v2.5",              21e9,      WHOLE,     NO_EMBEDDING),  # deepseek-ai/DeepSeek-V2 README.md
    ("deepseek-v2-lite",           2.4e9,     TENTH,     NO_EMBEDDING),  # deepseek-ai/DeepSeek-V2 README.md
    ("kimi-k2",                    32e9,      WHOLE,     NO_EMBEDDING),  # MoonshotAI/Kimi-K2 README.md
    ("dbrx",                       36e9,      WHOLE,     NO_EMBEDDING),  # databricks/dbrx README.md
    ("qwen3-coder-480b-a35b",      35e9,      WHOLE,     NO_EMBEDDING),  # its name
    ("nemotron-3-super-120b-a12b", 12e9,      WHOLE,     NO_EMBEDDING),  # its name
    ("minimax-m1",                 45.9e9,    TENTH,     NO_TABLES),     # MiniMax-AI/MiniMax-M1 README.md
    ("minimax-m2.5",               10e9,      WHOLE,     NO_TABLES),     # MiniMax-AI/MiniMax-M2 README.md
    ("glm-4.5",                    32e9,      WHOLE,     NO_TABLES),     # zai-org/GLM-4.5 README.md
    ("glm-4.5-air",                12e9,      WHOLE,     NO_TABLES),     # zai-org/GLM-4.5 README.md
    ("qwen3-next-80b-a3b",         3e9,       WHOLE,     NO_TABLES),     # its name
    ("nemotron-3-nano-30b-a3b",    3e9,       WHOLE,     NO_TABLES),     # its name
    ("olmoe-1b-7b",                1e9,       WHOLE,     NO_TABLES),     # its name
]
# fmt: on


@pytest.mark.parametrize(("name", "parameters"), [pytest.param(*row[1:], id=row[0]) for row in [*EXACT, *OWN]])
def test_recount_equals_the_literal(name, parameters):
    """Our count from the shapes is the literal, to the last parameter."""
    assert MODELS[name].parameters.total == parameters


def test_number_of_exact_rows():
    """The transformers class counts 211 of 223 entries; the files of the others carry no reference count."""
    assert (len(EXACT), len(OWN)) == (211, 12)
    assert {name for _, name, _ in OWN} == {name for name, model in MODELS.items() if model.reference_count is None}


def test_a_file_states_the_literal():
    """The reference count in a file is the literal of the table."""
    stated = {name: model.reference_count.total for name, model in MODELS.items() if model.reference_count}
    literals = {name: parameters for _, name, parameters in EXACT}
    assert stated == {**literals, **{name: literals[sibling] for name, sibling in SAME_SHAPE.items()}}


def test_every_file_is_counted():
    """Each file has a row in the table, or the shape of one that has."""
    assert MODELS.keys() == {row["id"] for row in ROWS} | SAME_SHAPE.keys()
    assert all(MODELS[name].parameters == MODELS[sibling].parameters for name, sibling in SAME_SHAPE.items())


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_count(name):
    """A published total is ours exactly, or exactly ours and what the table of differences says."""
    difference, _ = DIFFERENCES.get(name, (0, ""))
    assert MODELS[name].published_count.total - MODELS[name].parameters.total == difference


def test_every_difference_has_a_note_in_its_file():
    """A file says why its published total differs, and only then."""
    noted = {name for name in PUBLISHED if MODELS[name].published_count.note}
    assert noted == DIFFERENCES.keys()


def test_every_prediction_module_is_listed():
    """No file gains or loses a prediction module unseen."""
    assert {name for name, model in MODELS.items() if model.prediction_module} == PREDICTION.keys() | FURTHER_PREDICTION


@pytest.mark.parametrize(("name", "parameters"), PREDICTION.items())
def test_prediction_module(name, parameters):
    """The module that predicts ahead is counted apart, with the copies of both tables that some checkpoints store."""
    assert MODELS[name].parameters.prediction_module == parameters + COPIES.get(name, 0)


@pytest.mark.parametrize(("name", "published", "tolerance", "convention"), ACTIVE)
def test_active_parameters(name, published, tolerance, convention):
    """The published figure is that of one convention, within its rounding, and the other two are no nearer."""
    parameters = MODELS[name].parameters
    distance = {way: abs(getattr(parameters, way) - published) for way in (EVERYTHING, NO_EMBEDDING, NO_TABLES)}
    assert distance[convention] == min(distance.values())
    assert distance[convention] <= tolerance


@pytest.mark.parametrize(
    ("name", "counted_with_idle_biases", "layers", "idle"),
    [("gpt-oss-120b", 5_750_551_872, 36, 128 - 4), ("gpt-oss-20b", 4_193_246_784, 24, 32 - 4)],
)
def test_idle_experts_take_their_biases_with_them(name, counted_with_idle_biases, layers, idle):
    """One expert includes its biases: another count leaves 38.6M and 5.8M biases of idle experts in the active."""
    assert MODELS[name].parameters.active == counted_with_idle_biases - layers * idle * (2 * 2_880 + 2_880)


def test_a_looked_up_table_is_total_but_not_matrices():
    """Gemma's per-layer inputs are 2.3B parameters that no token is multiplied with."""
    parameters = MODELS["gemma-4-e2b"].parameters
    assert parameters.lookup == 262_144 * 35 * 256
    assert parameters.active - parameters.active_without_embedding == parameters.lookup
