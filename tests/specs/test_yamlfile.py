"""Bad files: each gives one line that names the file, the key, the value found and what was expected."""

import re

import pytest
import yaml

import rooflinekit as rk

MODEL = {
    "hidden_size": 64,
    "vocabulary": 100,
    "mixers": [{"name": "full", "heads": 4, "kv_heads": 2, "head_dim": 16}],
    "feedforwards": [{"name": "dense", "intermediate_size": 128}],
    "layers": [["full", "dense", 2]],
}
SUMMARY = {"summary": {"parameters": 1000, "layers": 2, "kv_heads": 1, "head_dim": 4}}
MIXER, BLOCK = MODEL["mixers"][0], MODEL["feedforwards"][0]
LATENT = {"name": "full", "kind": "mla", "heads": 4, "kv_rank": 8, "nope_dim": 8, "rope_dim": 4, "value_dim": 8}
MIXTURE = {"name": "dense", "kind": "moe", "experts": 8, "experts_per_token": 2, "intermediate_size": 64}

# fmt: off
#: Text of a device file, and what the message says after the file's name.
FILES = [
    ("",                                           r"is empty, expected a mapping of `key: value` lines"),
    ("- 1\n- 2\n",                                 r"holds list, expected a mapping of `key: value` lines"),
    ("just words",                                 r"holds str, expected a mapping of `key: value` lines"),
    ("a: [1, 2\nb: 3\n",                           r"is no YAML file \(.* in line \d\): expected `key: value` lines"),
    ("a: {b: 1}}\n",                               r"is no YAML file \(.* in line 1\): expected `key: value` lines"),
    ("a: !!python/object:os.system {}\n",      r"is no YAML file \(could not determine a constructor .*\): expected.*"),
    (b"\x00\x01\x02GGUF\xff\xfe\x80",              r"is no YAML file \(.*\): expected `key: value` lines"),
    (b"PK\x03\x04binary",                          r"is no YAML file \(.*\): expected `key: value` lines"),
    ("bandwidth_gb_per_s: -5\n",                   r"`datasheet\.bandwidth_gb_per_s` = -5: .*greater than 0.*"),
    ("bandwidth_gb_per_s: 0\n",                    r"`datasheet\.bandwidth_gb_per_s` = 0: .*greater than 0.*"),
    ("bandwidth_gb_per_s: .nan\n",                 r"`datasheet\.bandwidth_gb_per_s` = nan: .*finite number.*"),
    ("bandwidth_gb_per_s: .inf\n",                 r"`datasheet\.bandwidth_gb_per_s` = inf: .*finite number.*"),
    ("bandwidth_gb_per_s: 273 GB/s\n",             r"`datasheet\.bandwidth_gb_per_s` = '273 GB/s': .*number.*"),
    ("bandwidth_gb_per_s: [273]\n",                r"`datasheet\.bandwidth_gb_per_s` = \[273\]: .*"),
    ("bandwidth_gb_per_s: NO\n",                   r"`datasheet\.bandwidth_gb_per_s` = False: .*"),
    ("bandwidth_gb_per_s: YES\n",                  r"`datasheet\.bandwidth_gb_per_s` = True: .*"),
    ("memory_gib: 80\n",                           r"missing key `(datasheet\.)?bandwidth_gb_per_s`: add it"),
    ("{bandwidth_gb_per_s: 1, memory_gb: 80}\n",
                                   r"unknown key `(datasheet\.)?memory_gb`: did you mean `memory_gib`\?"),
    ("{bandwidth_gb_per_s: 1, colour: red}\n",     r"unknown key `(datasheet\.)?colour`: expected one of bandwidth_.*"),
    ("bandwith_gb_per_s: 273\n",
                               r"unknown key `(datasheet\.)?bandwith_gb_per_s`: did you mean `bandwidth_gb_per_s`\?.*"),
    ("{bandwidth_gb_per_s: 1, peak_dense_tflops: {bf17: 5}}\n",
                                   r"unknown key `datasheet\.peak_dense_tflops\.bf17`: did you mean `bf16`\?"),
    ("{bandwidth_gb_per_s: 1, peak_dense_tflops: 125}\n",
                                   r"`datasheet\.peak_dense_tflops` = 125: .*"),
    ("{id: My Card, bandwidth_gb_per_s: 1}\n",     r"`id` = 'My Card': .*"),
    ("{bandwidth_gb_per_s: 1, kind: phone}\n",     r"`kind` = 'phone': .*'datacenter'.*"),
    ("{bandwidth_gb_per_s: 1, efficiency: [{name: x, products: {bf16: {compute: 1.2, memory: 1, launch_us: 0}}}]}\n",
                                   r"`efficiency\.0\.products\.bf16\.compute` = 1\.2: .*less than or equal to 1.*"),
    ("{bandwidth_gb_per_s: 1, efficiency: [{name: x, norms: {memory: 1, launch_us: 0}}]}\n",
                                   r"unknown key `efficiency\.0\.norms`: did you mean `norm`\?"),
]

#: Content of a model, and what the message says after the place.
MODELS = [
    ({**MODEL, "mixers": [{**MIXER, "kv_heads": 3}]}, r"`mixers\.0`.*: heads \(4\) must be a multiple of kv_heads.*"),
    ({**MODEL, "mixers": [{**MIXER, "heads": 0}]},          r"`mixers\.0\.heads` = 0: .*greater than 0.*"),
    ({**MODEL, "mixers": [{**MIXER, "heads": 4.5}]},        r"`mixers\.0\.heads` = 4\.5: .*integer.*"),
    ({**MODEL, "mixers": [{**MIXER, "heads": "many"}]},     r"`mixers\.0\.heads` = 'many': .*number.*"),
    ({**MODEL, "mixers": [{**MIXER, "qk_norm": "yes"}]},    r"`mixers\.0\.qk_norm` = 'yes': .*'head'.*"),
    ({**MODEL, "mixers": [{**MIXER, "num_heads": 4}]},  r"unknown key `mixers\.0\.num_heads`: .*heads.*"),
    ({**MODEL, "feedforwards": [{"name": "dense"}]},       r"missing key `feedforwards\.0\.intermediate_size`: add it"),
    ({**MODEL, "mixers": [{**MIXER, "kv_head": 2}]},  r"unknown key `mixers\.0\.kv_head`: did you mean `kv_heads`\?"),
    ({**MODEL, "mixers": [{**MIXER, "kind": "mqa"}]},
                     r"`mixers\.0\.kind` = 'mqa': expected one of gqa, mla, .*, none; correct the value"),
    ({**MODEL, "mixers": [5]},                              r"`mixers\.0` = 5: .*valid dictionary.*"),
    ({**MODEL, "mixers": [{**LATENT, "q_rank": 0}]},        r"`mixers\.0\.q_rank` = 0: .*greater than 0.*"),
    ({**MODEL, "mixers": [{**LATENT, "head_dim": 4}]},
                     r"unknown key `mixers\.0\.head_dim`: did you mean `rope_dim`\?"),
    ({**MODEL, "mixers": [{**LATENT, "indexer": {"heads": 4, "head_dim": 4}}]},
                                                    r"missing key `mixers\.0\.indexer\.selected`: add it"),
    ({**MODEL, "mixers": [{**LATENT, "indexer": {"heads": 4, "head_dim": 4, "select": 9}}]},
                     r"unknown key `mixers\.0\.indexer\.select`: did you mean `selected`\? \(and 1 more\)"),
    ({**MODEL, "feedforwards": [{**MIXTURE, "experts_per_tok": 2}]},
                     r"unknown key `feedforwards\.0\.experts_per_tok`: did you mean `experts_per_token`\?"),
    ({**MODEL, "feedforwards": [{**MIXTURE, "experts_per_token": 9}]},
                     r"`feedforwards\.0`: experts_per_token \(9\) must not exceed experts \(8\).*"),
    ({**MODEL, "quantisation": {"default": "fp8", "ignore": []}},
                     r"unknown key `quantisation\.ignore`: expected one of method, default, rules, .*"),
    ({**MODEL, "hidden_size": -64},                         r"`hidden_size` = -64: .*greater than 0.*"),
    ({**MODEL, "dtype": "bf61"},                            r"`dtype` = 'bf61': .*'bf16', 'fp16' or 'fp32'.*"),
    ({**MODEL, "layers": [["full", "moe", 2]]},          r".*layers names moe, which (mixers and )?feedforwards.*"),
    ({**MODEL, "layers": [["dense", "full", 2]]},           r".*layers.*dense.*"),
    ({**MODEL, "layers": [["full", "dense", 0]]},           r"`layers\.0\.2` = 0: .*greater than 0.*"),
    ({**MODEL, "layers": [["full", "dense"]]},              r"(`layers\.0`.*|missing key `layers\.0\.2`.*)"),
    ({**MODEL, "mixers": [MIXER, {**MIXER, "heads": 8}]},   r".*full.*"),
    ({**MODEL, "position": "learned"},                      r".*position_rows belongs to learned positions.*"),
    ({**MODEL, "intermediate_size": 128},                   r"unknown key `intermediate_size`.*"),
    ({"hidden_size": 64},                                   r".*missing vocabulary, layers: .*`summary`.*"),
    ({},                                                   r".*missing hidden_size, vocabulary, layers: .*`summary`.*"),
    ({**MODEL, **SUMMARY},                                  r".*give either `summary` or .*, not both.*"),
    ({"summary": {**SUMMARY["summary"], "heads": 3, "kv_heads": 2}}, r".*heads \(3\) must be a multiple of kv_heads.*"),
    ({"summary": {**SUMMARY["summary"], "active_parameters": 2000}}, r".*active_parameters \(2000\) must not exceed.*"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), FILES)
def test_a_bad_device_file_is_one_line(tmp_path, content, message):
    """The message names the file, the key, the value found and what was expected, in one line."""
    path = tmp_path / "card.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(rk.SpecError) as caught:
        rk.load_device(path)
    assert re.fullmatch(f"{re.escape(str(path))}: {message}", str(caught.value))
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(("content", "message"), MODELS)
def test_a_bad_model_file_is_one_line(tmp_path, content, message):
    """The same for a model, read from a file and handed in as a mapping."""
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    for where, given in ((re.escape(str(path)), path), ("model mapping", content)):
        with pytest.raises(rk.SpecError) as caught:
            rk.load_model(given).parameters.total  # noqa: B018 - a fault must not wait until the counts are asked for
        assert re.fullmatch(f"{where}: {message}", str(caught.value))


def test_several_faults_are_counted():
    """The first fault is spelled out, the others counted: one line, not a page."""
    with pytest.raises(rk.SpecError, match=r"^model mapping: .* \(and 1 more\)$"):
        rk.load_model({**MODEL, "hidden_size": -1, "vocabulary": 0})


def test_the_good_versions_load():
    """What the bad ones were made from is sound."""
    assert rk.load_model(MODEL).parameters.total > 0
    assert rk.load_model(SUMMARY).parameters.total == 1000


def test_a_key_given_twice_is_refused(tmp_path):
    """YAML would keep the last of two equal keys silently."""
    path = tmp_path / "card.yaml"
    path.write_text("bandwidth_gb_per_s: 1\nbandwidth_gb_per_s: 2\n", encoding="utf-8")
    with pytest.raises(rk.SpecError, match="bandwidth_gb_per_s"):
        rk.load_device(path)


@pytest.mark.parametrize("number", ["032", "1:30", "0x20"])
def test_integers_of_other_bases_are_refused(tmp_path, number):
    """YAML 1.1 would read 032 as 26 and 1:30 as 90."""
    path = tmp_path / "mine.yaml"
    path.write_text(f"summary: {{parameters: 8000000000, layers: {number}, kv_heads: 8, head_dim: 128}}\n")
    with pytest.raises(rk.SpecError, match=r"`summary\.layers` = "):
        rk.load_model(path)
