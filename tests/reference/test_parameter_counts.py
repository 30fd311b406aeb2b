"""Parameter counts of the shipped models against counts that do not come from our own arithmetic.

Three witnesses: the transformers 5.24.0 model class built from the same config without weights (exact), a published
total (a checkpoint's metadata, another implementation, a model card), and literals written here.
"""

import pytest

from rooflinekit import list_models, load_model

MODELS = {name: load_model(name) for name in list_models()}
REFERENCE = [name for name, model in MODELS.items() if model.reference_count]
PUBLISHED = [name for name, model in MODELS.items() if model.published_count]

#: Counted once by the transformers class; literals, so that a wrong file and a wrong formula cannot agree by accident.
# fmt: off
COUNTS = [
    # model               parameters       what it exercises
    ("llama-3.1-8b",      8_030_261_248),  # grouped queries, untied
    ("llama-3.1-405b",    405_853_388_800),
    ("llama-3.2-1b",      1_235_814_400),  # tied
    ("llama-2-70b",       68_976_648_192),
    ("mistral-7b-v0.3",   7_248_023_552),
    ("mistral-nemo-12b",  12_247_782_400),  # heads x head_dim is not hidden_size
    ("qwen2.5-7b",        7_615_616_512),  # bias on q, k and v
    ("qwen2.5-72b",       72_706_203_648),
    ("qwen2.5-vl-7b",     7_615_616_512),  # language decoder only
    ("qwen3-0.6b",        596_049_920),
    ("qwen3-8b",          8_190_735_360),  # one query and one key norm vector for all heads
    ("qwen3-32b",         32_762_123_264),
    ("gemma-7b",          8_537_680_896),
    ("gemma-2-9b",        9_241_705_984),  # four norms a layer
    ("gemma-3-27b",       27_009_346_304),
    ("gemma-4-31b",       30_697_345_280),  # two head widths, V taken from K
    ("phi-2",             2_779_683_840),  # parallel block with one norm, bias on the output layer
    ("phi-3-mini-4k",     3_821_079_552),
    ("phi-4",             14_659_507_200),
    ("olmo-2-7b",         7_298_617_344),  # query and key norms over the whole projection
    ("olmo-3-7b",         7_298_011_136),
    ("command-r-plus",    103_810_674_688),  # a norm for each head, norm without bias
    ("aya-23-8b",         8_028_033_024),
    ("falcon-7b",         6_921_720_704),  # one key head
    ("falcon-40b",        41_303_293_952),  # parallel block with two norms
    ("falcon-180b",       178_557_088_768),
    ("gpt2-xl",           1_557_611_200),  # learned positions
    ("opt-6.7b",          6_658_473_984),  # two rows of positions more
    ("santacoder",        1_124_886_528),
    ("gpt-j-6b",          6_050_882_784),  # no bias in attention, bias in the feed-forward
    ("gpt-neo-1.3b",      1_315_575_808),  # only the output projection of attention is biased
    ("gpt-neox-20b",      20_554_567_680),
    ("pythia-12b",        11_846_072_320),
    ("bloom",             176_247_271_424),  # a norm on the embedding
    ("mpt-7b",            6_649_286_656),
    ("starcoder2-7b",     7_173_923_840),
    ("stablelm-2-1.6b",   1_644_515_328),
    ("granite-3b-code",   3_482_503_680),
    ("seed-oss-36b",      36_151_104_512),  # bias on q, k and v but not on o
    ("smollm3-3b",        3_075_098_624),
    ("exaone-4.0-32b",    32_003_216_384),
    ("glm-4-9b",          9_399_951_360),
]
# fmt: on

#: No transformers class counts these. The first three have a published total as well; the others have no witness but
#: an earlier implementation of the same arithmetic.
WITHOUT_REFERENCE = {
    "mimo-7b": 7_622_619_136,
    "openpangu-embedded-7b": 8_030_887_936,
    "qwen-72b": 72_287_920_128,
    "internlm-7b": 7_321_948_160,
    "internlm2-7b": 7_737_708_544,
    "internlm2.5-7b": 7_737_708_544,
    "ministral-3-3b": 3_429_006_336,
}

#: Published totals that differ: published minus ours, to the last parameter, and why.
DIFFERENCES = {
    "command-r": (19_168_768, "the model card rounds to 35B"),
    "falcon-7b": (65_024 * 4_544, "the checkpoint stores the tied head too"),
    "falcon-180b": (65_024 * 14_848, "the checkpoint stores the tied head too"),
    "qwen3-0.6b": (151_936 * 1_024, "the checkpoint stores the tied head too"),
    "gpt-neo-1.3b": (12 * 2_048**2, "causal masks are stored too"),
    "pythia-1b": (16 * (2_048**2 + 32), "causal masks and rotary frequencies are stored too"),
    "pythia-6.9b": (32 * (2_048**2 + 16), "causal masks and rotary frequencies are stored too"),
    "pythia-12b": (36 * (2_048**2 + 16), "causal masks and rotary frequencies are stored too"),
    "openpangu-embedded-7b": (34 * 128, "stored rotary tables"),
    "opt-125m": (-2 * 768, "keras-hub has two rows of learned positions less"),
    "mimo-7b": (210_790_400, "one next-token-prediction layer"),
    "gemma-3-4b": (419_816_304, "the vision tower"),
    "gemma-3-12b": (421_290_864, "the vision tower"),
    "gemma-3-27b": (423_060_336, "the vision tower"),
    "qwen2.5-vl-7b": (676_550_144, "the vision tower"),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_recount_equals_the_transformers_class(name):
    """Our count from the shapes is the transformers count, to the last parameter."""
    assert MODELS[name].parameters.total == MODELS[name].reference_count.total


def test_number_of_reference_counts():
    """At least 114 files carry a reference count; every other file is listed with a literal."""
    assert len(REFERENCE) >= 114
    assert MODELS.keys() - set(REFERENCE) == WITHOUT_REFERENCE.keys()


@pytest.mark.parametrize(("name", "parameters"), [*COUNTS, *WITHOUT_REFERENCE.items()])
def test_recount_equals_the_literal(name, parameters):
    """Our count from the shapes is the literal, to the last parameter."""
    assert MODELS[name].parameters.total == parameters


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_count(name):
    """A published total is ours exactly, or exactly ours and what the table of differences says."""
    difference, _ = DIFFERENCES.get(name, (0, ""))
    assert MODELS[name].published_count.total - MODELS[name].parameters.total == difference


def test_every_difference_has_a_note_in_its_file():
    """A file says why its published total differs, and only then."""
    noted = {name for name in PUBLISHED if MODELS[name].published_count.note}
    assert noted == DIFFERENCES.keys()
