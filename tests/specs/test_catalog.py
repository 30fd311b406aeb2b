"""Names: what resolves, what is ambiguous, what is refused, and whose file is read first."""

import pytest
import yaml

import rooflinekit as rk
from rooflinekit.specs import catalog

# fmt: off
DEVICES = [
    # name                           id                    why
    ("h100-sxm-80gb",                "h100-sxm-80gb",      "the id"),
    ("h100-sxm",                     "h100-sxm-80gb",      "a prefix that ends at a dash"),
    ("H100 SXM",                     "h100-sxm-80gb",      "the same prefix in other words"),
    ("h100_sxm_80gb",                "h100-sxm-80gb",      "the id in other words"),
    ("H100-SXM-80GB",                "h100-sxm-80gb",      "the id in capitals"),
    ("NVIDIA H100 80GB HBM3",        "h100-sxm-80gb",      "an alias"),
    ("DGX Spark",                    "gb10",               "an alias"),
    ("nvidia  gb10",                 "gb10",               "an alias in other words"),
    ("NVIDIA H200 NVL",              "h200-nvl",           "an alias: not the SXM part"),
    ("rtx-3090",                     "rtx-3090",           "an id that begins another id, rtx-3090-ti"),
    ("RTX 3090",                     "rtx-3090",           "the same in other words"),
    ("rtx-4080",                     "rtx-4080",           "an id that begins another id, rtx-4080-super"),
    ("apple-m4-max",                 "apple-m4-max",       "the id spelled as an id"),
    ("apple-m4",                     "apple-m4",           "an id that begins three others"),
]
AMBIGUOUS = [
    # name           choices
    ("A100",         "a100-pcie-40gb, a100-pcie-80gb, a100-sxm-40gb, a100-sxm-80gb"),
    ("a100-sxm",     "a100-sxm-40gb, a100-sxm-80gb"),
    ("H100",         "h100-nvl, h100-pcie-80gb, h100-sxm-80gb"),
    ("h100",         "h100-nvl, h100-pcie-80gb, h100-sxm-80gb"),
    ("H200",         "h200-nvl, h200-sxm"),
    ("Apple M4 Max", "apple-m4-max, apple-m4-max-32c"),
    ("apple m4 max", "apple-m4-max, apple-m4-max-32c"),
]
UNKNOWN = ["3090", "h100-sx", "h100-sxm-8", "100", "sxm", "h100-sxm-80gb-x", "m4", "4090", "b10", "-", "", "nvidia"]
MODELS = [
    # name                        id                  why
    ("qwen3-8b",                  "qwen3-8b",         "the id"),
    ("Qwen/Qwen3-8B",             "qwen3-8b",         "the Hub id"),
    ("qwen/qwen3-8b-base",        "qwen3-8b",         "another Hub id, in small letters"),
    ("meta-llama/Llama-3.1-8B",   "llama-3.1-8b",     "the Hub id"),
    ("Llama 3.1 8B",              "llama-3.1-8b",     "the name"),
    ("llama-3-1-8b",              "llama-3.1-8b",     "the id in other words"),
    ("gpt2",                      "gpt2",             "an id that begins others"),
    ("bloom",                     "bloom",            "an id that begins others"),
]
# fmt: on


@pytest.mark.parametrize(("name", "identifier"), [pytest.param(*row[:2], id=f"{row[0]}: {row[2]}") for row in DEVICES])
def test_a_device_is_found(name, identifier):
    """By id, by a prefix of one id that ends at a dash, or by alias, on normalised words."""
    assert rk.load_device(name).id == identifier


@pytest.mark.parametrize(("name", "identifier"), [pytest.param(*row[:2], id=f"{row[0]}: {row[2]}") for row in MODELS])
def test_a_model_is_found(name, identifier):
    """By id, Hub id, name or alias, on normalised words."""
    assert rk.load_model(name).id == identifier


@pytest.mark.parametrize(("name", "choices"), AMBIGUOUS)
def test_a_name_of_several_devices_lists_them(name, choices):
    """SKUs are not guessed: the error names each of them."""
    with pytest.raises(rk.AmbiguousNameError, match=f"^'{name}' is the name of .* devices: choose one of {choices}$"):
        rk.load_device(name)


def test_a_name_of_several_models_lists_them():
    """A family is not a model."""
    with pytest.raises(rk.AmbiguousNameError, match=r"choose one of llama-3\.1-405b, llama-3\.1-70b, llama-3\.1-8b$"):
        rk.load_model("llama-3.1")


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_part_of_a_name_is_no_name(name):
    """Never by substring, never by a prefix that ends inside a word."""
    with pytest.raises(rk.UnknownNameError, match="is not in hardware_db") as caught:
        rk.load_device(name)
    assert not isinstance(caught.value, rk.AmbiguousNameError)


@pytest.mark.parametrize("name", ["qwen3-8", "8b", "Qwen3", "meta-llama", "llama-3.1-8", "qwe"])
def test_a_part_of_a_models_name_is_no_single_model(name):
    """Neither a fragment nor a family resolves to one model."""
    with pytest.raises(rk.UnknownNameError):
        rk.load_model(name)


@pytest.mark.parametrize("identifier", rk.list_devices())
def test_every_device_is_found_by_its_id_alone(identifier):
    """An id spelled as an id is always that one device, whoever else bears the name."""
    assert rk.load_device(identifier).id == identifier


@pytest.mark.parametrize("identifier", rk.list_models())
def test_every_model_is_found_by_its_id_and_hub_ids(identifier):
    """An id and each Hub id lead to the one model."""
    model = rk.load_model(identifier)
    assert model.id == identifier
    assert {rk.load_model(name).id for name in model.hub_ids} <= {identifier}


def test_every_alias_leads_to_its_device_or_lists_it():
    """No alias is lost: it resolves to its device, or is ambiguous and the device is among the choices."""
    for identifier in rk.list_devices():
        for name in rk.load_device(identifier).names:
            try:
                assert rk.load_device(name).id == identifier
            except rk.AmbiguousNameError as error:
                assert identifier in str(error).split("choose one of ")[1].split(", ")  # noqa: PT017 - either will do


MEANT = [
    ("h100-sxn-80gb", rk.load_device, r"^h100-sxn-80gb is not in hardware_db; did you mean h100-sxm-80gb\b.*\? "),
    ("gb1o", rk.load_device, r"did you mean gb10\b"),
    ("zzz", rk.load_device, r"^zzz is not in hardware_db.? `rooflinekit devices list` shows all devices$"),
    ("qwen3-8d", rk.load_model, r"^qwen3-8d is not in model_configs; did you mean qwen3-8b\b.*\? "),
    ("lama-3.1-8b", rk.load_model, r"did you mean llama-3.1-8b\b.* `rooflinekit models list` shows all models$"),
]


@pytest.mark.parametrize(("name", "load", "message"), MEANT)
def test_a_wrong_name_says_what_was_meant(name, load, message):
    """The nearest id, and the command that lists them all."""
    with pytest.raises(rk.UnknownNameError, match=message):
        load(name)


def test_names_are_compared_as_words():
    """Case and separators do not matter; letters, digits and their order do."""
    assert catalog.normalise("NVIDIA H200_NVL") == catalog.normalise("nvidia/h200 nvl") == "nvidia-h200-nvl"
    assert catalog.normalise("H200NVL") != catalog.normalise("H200 NVL")


# ---- the user's own files


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Folder of the user's own devices and models, named by the environment variables."""
    for variable, folder in (("HARDWARE_DB", "devices"), ("MODEL_CONFIGS", "models")):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(f"ROOFLINEKIT_{variable}", str(tmp_path / folder))
    catalog.clear_cache()
    yield tmp_path
    catalog.clear_cache()


def test_the_users_folders_come_first(own):
    """A file of a shipped id replaces it, a new one is listed beside them, in folders within the folder too."""
    (own / "devices" / "gb10.yaml").write_text("bandwidth_gb_per_s: 111\n", encoding="utf-8")
    (own / "devices" / "lab").mkdir()
    (own / "devices" / "lab" / "my-card.yml").write_text(
        "{bandwidth_gb_per_s: 222, aliases: [Big One]}\n", encoding="utf-8"
    )
    (own / "models" / "tiny.yaml").write_text(
        "summary: {parameters: 1000, layers: 2, kv_heads: 1, head_dim: 4}\n", encoding="utf-8"
    )
    catalog.clear_cache()
    assert rk.load_device("gb10").bytes_per_s == 111e9
    assert rk.load_device("my-card").bytes_per_s == rk.load_device("big one").bytes_per_s == 222e9
    assert rk.load_model("tiny").parameters.total == 1000
    assert {"gb10", "my-card", "h200-sxm"} <= set(rk.list_devices())
    assert {"tiny", "qwen3-8b"} <= set(rk.list_models())


def test_several_folders_are_searched_in_order(own, monkeypatch):
    """Folders are separated as in PATH, and the first that holds an id has it."""
    folders = [own / "first", own / "second"]
    for folder, rate in zip(folders, (1, 2), strict=True):
        folder.mkdir()
        (folder / "card.yaml").write_text(f"bandwidth_gb_per_s: {rate}\n", encoding="utf-8")
    monkeypatch.setenv("ROOFLINEKIT_HARDWARE_DB", f"{folders[0]}{catalog.os.pathsep}{folders[1]}")
    assert rk.load_device("card").bytes_per_s == 1e9


def test_a_changed_file_is_read_after_the_cache_is_cleared(own):
    """A file is read once, and again when told."""
    path = own / "devices" / "card.yaml"
    path.write_text("bandwidth_gb_per_s: 1\n", encoding="utf-8")
    catalog.clear_cache()
    assert rk.load_device("card").bytes_per_s == 1e9
    path.write_text("bandwidth_gb_per_s: 2\n", encoding="utf-8")
    assert rk.load_device("card").bytes_per_s == 1e9
    catalog.clear_cache()
    assert rk.load_device("card").bytes_per_s == 2e9


def test_a_missing_user_folder_is_an_error(own, monkeypatch):
    """A wrong environment variable is named, and not passed over."""
    monkeypatch.setenv("ROOFLINEKIT_HARDWARE_DB", str(own / "nowhere"))
    with pytest.raises(rk.SpecError, match=r"^ROOFLINEKIT_HARDWARE_DB: .*nowhere is no folder"):
        rk.load_device("gb10")


def test_a_broken_user_file_is_named(own):
    """One broken file in the user's folder is an error that names it, whatever name is looked up by alias."""
    (own / "devices" / "broken.yaml").write_text("bandwidth_gb_per_s: fast\n", encoding="utf-8")
    catalog.clear_cache()
    with pytest.raises(rk.SpecError, match=r"broken\.yaml: .*bandwidth_gb_per_s"):
        rk.load_device("DGX Spark")
    assert rk.load_device("gb10").id == "gb10"


# ---- paths and mappings


def test_a_path_is_a_name(tmp_path):
    """A YAML file anywhere, as text or as a path; its id and name are the file's stem unless it gives its own."""
    path = tmp_path / "My Card (v2).yaml"
    path.write_text("bandwidth_gb_per_s: 5\n", encoding="utf-8")
    for name in (path, str(path)):
        device = rk.load_device(name)
        assert (device.id, device.name, device.bytes_per_s) == ("my-card-v2", "My Card (v2)", 5e9)
    with pytest.raises(rk.SpecError, match=r"gone\.yaml: cannot be read \(No such file or directory\)"):
        rk.load_device(tmp_path / "gone.yaml")
    with pytest.raises(rk.SpecError, match=r"cannot be read \(Is a directory\)"):
        rk.load_device(tmp_path)


def test_the_datasheets_keys_alone_are_a_device():
    """The short form: the keys of the datasheet block at the top, with or without those of the device."""
    short = {"bandwidth_gb_per_s": 2000, "peak_dense_tflops": {"bf16": 200}, "memory_gib": 16, "generation": "hopper"}
    device = rk.load_device(short)
    assert (device.id, device.name, device.generation) == ("custom", "custom", "hopper")
    assert (device.bytes_per_s, device.flops_per_s, device.memory_bytes) == (2e12, {"bf16": 2e14}, 16 * 2**30)
    assert short["peak_dense_tflops"] == {"bf16": 200}


def test_bandwidth_is_decimal_and_capacity_binary():
    """GB/s are 10^9 bytes a second; GiB are 2^30 bytes, and a usable figure in MiB goes before the label."""
    card = {"bandwidth_gb_per_s": 3350, "memory_gib": 80}
    assert rk.load_device(card).bytes_per_s == 3_350_000_000_000
    assert rk.load_device(card).memory_bytes == 85_899_345_920
    assert rk.load_device({**card, "usable_memory_mib": 81_559}).memory_bytes == 81_559 * 2**20
    assert rk.load_device({"bandwidth_gb_per_s": 1}).memory_bytes is None


def test_a_spec_passes_through():
    """What is loaded already is returned as it is."""
    assert rk.load_device(rk.load_device("gb10")) is rk.load_device("gb10")
    assert rk.load_model(rk.load_model("qwen3-8b")) is rk.load_model("qwen3-8b")


def test_a_dumped_spec_loads_again():
    """What a spec writes as YAML is the file it came from, in content."""
    for load, names in ((rk.load_device, rk.list_devices()), (rk.load_model, rk.list_models())):
        for name in (names[0], names[len(names) // 2], "gb10" if load is rk.load_device else "gemma-2-9b"):
            spec = load(name)
            assert (
                load(
                    yaml.safe_load(yaml.safe_dump(spec.model_dump(mode="json", exclude_defaults=True), sort_keys=False))
                )
                == spec
            )


@pytest.mark.parametrize("thing", [None, 5, 2.5, ["gb10"]])
def test_something_that_is_no_name_is_refused(thing):
    """Neither None nor a number is a device."""
    with pytest.raises(rk.RooflinekitError):
        rk.load_device(thing)
