"""Memory check: the startup logs that ship against the rules and against the settings alone."""

from pathlib import Path

import pytest

from rooflinekit.calibration.memory_check import (
    check_logged,
    check_settings,
    memory_rows,
    memory_table,
    served_table,
    summary,
)
from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import Measurement, Reading, read
from rooflinekit.specs.catalog import list_devices, list_models

GIB = 2**30
LOGGED = check_logged()
SETTINGS = check_settings()


def row(table, name):
    """Give one row by its id."""
    return table[table["id"] == name].iloc[0]


# ---- the tables


def test_the_tables_speak_of_the_catalogue():
    """53 logs and 914 served rows; every model and device that is named can be loaded; bytes and seconds."""
    logs, served = memory_table(), served_table()
    assert (len(logs), len(served)) == (53, 914)
    assert set(logs["model"].dropna()) | set(served["model"]) <= set(list_models())
    assert set(logs["device"].dropna()) | set(served["device"]) <= set(list_devices())
    assert logs["source"].notna().all()
    assert served["source"].notna().all()
    assert logs["id"].is_unique
    assert served["id"].is_unique


def test_figures_were_converted_once():
    """15.33 GiB of the log, 972.3 ms and 33.44 ms of the sample."""
    assert row(memory_table(), "k03")["kv_cache_bytes"] == round(15.33 * GIB)
    first = row(served_table(), "s0000")
    assert (first["time_to_first_token_s"], first["time_per_output_token_s"]) == (0.972311, 0.0334429)


def test_layouts_are_those_that_ran():
    """Where the source's column means something else, the note says so and the row holds what ran."""
    served = served_table()
    merged = served[served["note"].fillna("").str.contains("TP = EP")]
    assert len(merged) > 20
    assert (merged["tensor_parallel"] == merged["expert_parallel"]).all()
    spurious = served[served["note"].fillna("").str.contains("spurious")]
    assert (spurious["data_parallel_attention"] == 1).all()


# ---- from the logged pool


@pytest.mark.parametrize("name", LOGGED[LOGGED["uniform"] & (LOGGED["explanation"] == "")]["id"])
def test_uniform_tokens_from_the_logged_pool(name):
    """floor(pool / bytes per token / 16) x 16, per GPU: within 0.5%."""
    found = row(LOGGED, name)
    assert abs(found["tokens_difference"]) < 0.005


@pytest.mark.parametrize("name", LOGGED[~LOGGED["uniform"]]["id"])
def test_hybrid_concurrency_from_the_logged_pool(name):
    """Groups, windows and states: concurrency within 0.5%, and the printed tokens with it."""
    found = row(LOGGED, name)
    assert abs(found["concurrency_difference"]) < 0.005
    assert abs(found["tokens_difference"]) < 0.005


def test_the_two_that_differ_are_explained():
    """Qwen3-235B by 1.1%, a V0 log by 16%; no other row is excused."""
    excused = LOGGED[LOGGED["explanation"] != ""]
    assert list(excused["model"]) == ["qwen3-235b-a22b", "qwen2.5-14b"]
    assert excused["tokens_difference"].round(3).tolist() == [0.011, 0.164]


def test_how_many_logs_are_checked():
    """27 of uniform models and 17 of hybrids say model and pool."""
    assert LOGGED["uniform"].value_counts().to_dict() == {True: 27, False: 17}


# ---- from the settings alone


def test_uniform_tokens_from_the_settings_alone():
    """Median within 4%, which is the target; the rows that no constant was taken from are told apart."""
    uniform = SETTINGS[SETTINGS["uniform"]]
    assert summary(uniform)["median"] < 0.02
    assert summary(uniform[~uniform["fitted"]])["median"] < 0.04
    assert summary(uniform[uniform["fitted"]])["p90"] < 0.02


def test_every_miss_has_a_reason():
    """Beyond 4% the row says what is the likely cause; below it says nothing."""
    missed = SETTINGS["tokens_difference"].abs() > 0.04
    assert not (SETTINGS[missed]["reason"].isin(["", "not explained"])).any()
    assert (SETTINGS[~missed]["reason"] == "").all()


def test_heavier_checkpoints_are_the_reason_where_their_weights_explain_it():
    """gpt-oss-20b on an RTX 3090 is 11% off, and 1.3% with the weights that the log prints."""
    found = row(SETTINGS, "k18")
    assert found["tokens_difference"] == pytest.approx(0.114, abs=0.01)
    assert abs(found["tokens_difference_given_weights"]) < 0.02
    assert "MXFP4 experts are padded" in found["reason"]


def test_a_log_with_other_nodes_and_a_machine_that_lacks_memory():
    """Two causes that no rule can know."""
    assert "several nodes" in row(SETTINGS, "k35")["reason"]
    assert "2 GiB and more are missing" in row(SETTINGS, "k13")["reason"]


# ---- from a file that was read


def reading(**facts):
    """Give the records of a startup log."""
    values = {"kv_cache_bytes": 6.95 * GIB, "kv_cache_tokens": 56_880, "max_concurrency": 1.79}
    records = tuple(
        Measurement(quantity=name, value=value, prompt_tokens=31_800 if name == "max_concurrency" else None, **facts)
        for name, value in values.items()
    )
    settings = {"gpu_memory_utilization": 0.95, "max_num_batched_tokens": 2048, "max_num_seqs": 64}
    return Reading("server.log", "vllm-log", records, settings, {}, ())


def test_records_become_a_row_of_the_same_columns():
    """The records of one log are checked as the table is."""
    rows = memory_rows(reading(model="llama-3.1-8b", device="rtx-3090", version="0.12.0"))
    logged, alone = check_logged(rows).iloc[0], check_settings(rows).iloc[0]
    assert abs(logged["tokens_difference"]) < 0.002
    assert logged["predicted_concurrency"] == pytest.approx(1.79, abs=0.005)
    assert abs(alone["tokens_difference"]) < 0.01


def test_a_log_is_read_and_checked():
    """The fixture of vLLM 0.12: its own lines, end to end."""
    log = Path(__file__).parents[1] / "measurements" / "files" / "vllm" / "log_v0.12.0.log"
    found = check_logged(memory_rows(read(log, model="llama-3.1-8b", device="rtx-4090"))).iloc[0]
    assert (found["version"], found["kv_cache_tokens"], found["max_concurrency"]) == ("0.12.0", 56_800, 1.79)
    assert abs(found["tokens_difference"]) < 0.001


@pytest.mark.parametrize("version", [None, "0.6.4.post1"])
def test_a_log_of_an_older_version_takes_the_oldest_profile(version):
    """V0 logs say tokens too."""
    rows = memory_rows(reading(model="llama-3.1-8b", device="rtx-3090", version=version))
    assert abs(check_logged(rows).iloc[0]["tokens_difference"]) < 0.002


def test_records_must_name_model_and_device():
    """Nothing is guessed of what a log does not say."""
    with pytest.raises(InvalidInputError, match=r"server\.log: names no model or no device: give model= and device="):
        memory_rows(reading(model="llama-3.1-8b"))


def test_a_file_without_memory_is_no_startup_log():
    """Other records are of no use here."""
    other = Reading("x.json", "vllm", (Measurement(quantity="decode_step_s", value=1.0),), {}, {}, ())
    with pytest.raises(InvalidInputError, match=r"x\.json: no kv_cache_tokens"):
        memory_rows(other)


def test_summary_of_nothing_is_no_number():
    """No rows, no median."""
    assert summary(SETTINGS.iloc[:0])["rows"] == 0
