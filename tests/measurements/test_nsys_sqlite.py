"""SQLite exports of nsys: sums by kernel, the union of their times, and what is no such export."""

import gzip
import sqlite3
from contextlib import closing

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import read

TABLES = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
    streamId INTEGER, demangledName INTEGER, shortName INTEGER);
INSERT INTO StringIds VALUES (1, 'void gemm<128, 64>(float *)'), (2, 'void softmax(float *)'), (3, 'gemm');
INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200'), (1, 'NVIDIA H200');
"""
# (start, end, device, stream, demangled name, short name): the second overlaps the first by 400 ns, the third is in it
KERNELS = [(1000, 2000, 0, 7, 1, 3), (1600, 3000, 0, 8, 2, 2), (1700, 1800, 0, 9, 1, 3), (5000, 5500, 0, 7, 1, 3)]


@pytest.fixture
def export(tmp_path):
    """Write an export: its kernels, and more SQL."""

    def write(kernels=KERNELS, *, tables=TABLES, more=""):
        path = tmp_path / "run of nsys.sqlite"
        with closing(sqlite3.connect(path)) as base, base:
            base.executescript(tables)
            if kernels:
                base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", kernels)
            base.executescript(more)
        return path

    return write


def values(reading):
    """Give quantity, name, launches and nanoseconds."""
    return [(one.quantity, one.name, one.count, round(one.value * 1e9, 6)) for one in reading.records]


EXPECTED = [
    ("kernel_time_s", "void gemm<128, 64>(float *)", 3, 1600),
    ("kernel_time_s", "void softmax(float *)", 1, 1400),
    ("gpu_busy_s", "", 4, 2500),
]


def test_values(export):
    """Sums are over streams; the union counts what overlaps once: 1,000 to 3,000 and 5,000 to 5,500 ns."""
    reading = read(export())
    assert values(reading) == EXPECTED
    assert (reading.format, {one.device for one in reading.records}) == ("nsys-sqlite", {"NVIDIA H200"})


def test_packed_or_handed_over(export):
    """A packed export and one from standard input read alike."""
    held = export().read_bytes()
    assert values(read("-", content=held)) == values(read("x.gz", content=gzip.compress(held))) == EXPECTED


def test_nothing_is_written(export):
    """The export stays as it is, with no journal beside it."""
    path = export()
    before = path.read_bytes()
    read(path)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_several_gpus(export):
    """Sums and unions are by GPU; where GPUs differ none is named."""
    other = "UPDATE TARGET_INFO_GPU SET name = 'NVIDIA L4' WHERE id = 1;"
    reading = read(export([*KERNELS, (1000, 9000, 1, 7, 2, 2)], more=other))
    busy = {one.includes: round(one.value * 1e9) for one in reading.records if one.quantity == "gpu_busy_s"}
    assert busy == {"GPU 0: kernels; no copies": 2500, "GPU 1: kernels; no copies": 8000}
    assert {one.device for one in reading.records} == {None}


def test_without_demangled_names(export):
    """An export with short names only is named by these; one without its string keeps its number."""
    tables = TABLES.replace("demangledName INTEGER, ", "unused INTEGER, ")
    reading = read(export([(0, 10, 0, 7, 1, 3), (20, 25, 0, 7, 1, 99)], tables=tables))
    assert [one.name for one in reading.records] == ["gemm", "kernel 99", ""]


def test_graphs_traced_as_a_whole(export):
    """Launches of graphs whose kernels were not traced are counted as skipped."""
    more = "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER);"
    more += "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (0, 1), (2, 3);"
    why = "CUDA graph traced as a whole, its kernels are in no sum: use --cuda-graph-trace=node"
    assert read(export(more=more)).skipped == {why: 2}


def test_kernels_without_time(export):
    """Launches that end when they begin are no measurement."""
    with pytest.raises(InvalidInputError, match="without a record: 1 x kernel whose launches have no time"):
        read(export([(5, 5, 0, 7, 1, 3)]))


NAMES = "CREATE TABLE StringIds (id INTEGER, value TEXT);"
KERNELS_ONLY_START = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER);"
VIEW = "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end, 3 AS demangledName;"

# fmt: off
BAD = [
    # tables                                message
    (NAMES,                                 r"holds no kernels .* profile with `nsys profile -t cuda`"),
    (NAMES + VIEW,                          r"holds no kernels"),
    (NAMES + KERNELS_ONLY_START,            r"lacks start, end or the kernels' names"),
    ("CREATE TABLE runs (n_gen INTEGER);",  r"of another program \(it holds runs\): expected an export of nsys"),
    ("",                                    r"is empty"),
]
# fmt: on


@pytest.mark.parametrize(("tables", "message"), BAD)
def test_other_databases(export, tables, message):
    """What a database lacks is said in one line; a view is no table."""
    with pytest.raises(InvalidInputError, match=message):
        read(export([], tables=tables))


def test_what_is_no_database(export, tmp_path):
    """A report of nsys, a text called an export and a cut export are refused with what to do."""
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"\x00\x01binary")
    with pytest.raises(
        InvalidInputError, match=r"run `nsys export --type sqlite run.nsys-rep` and read what it writes"
    ):
        read(report)
    with pytest.raises(InvalidInputError, match="is no SQLite database"):
        read("x.txt", content=b"hello", format="nsys-sqlite")
    many = [(at, at + 5, 0, 7, 1, 3) for at in range(0, 40000, 10)]
    held = export(many).read_bytes()
    with pytest.raises(InvalidInputError, match=r"cannot be read .* it is cut or broken"):
        read("cut.sqlite", content=held[: len(held) // 2])


def test_a_kernel_that_is_named_as_another_tools_table(export):
    """The text llama_bench in an export of nsys is a name, no table of llama-bench."""
    name = "UPDATE StringIds SET value = 'CREATE TABLE llama_bench' WHERE id = 1;"
    reading = read(export(more=name))
    assert reading.format == "nsys-sqlite"
    assert {one.name for one in reading.records} == {"CREATE TABLE llama_bench", "void softmax(float *)", ""}


def test_llama_benchs_own_database(export):
    """Its SQL, loaded into a database: refused as the SQL is, with the way to the rows."""
    path = export((), tables="CREATE TABLE IF NOT EXISTS llama_bench (\n  build_commit TEXT, n_prompt INTEGER);")
    with pytest.raises(InvalidInputError, match=r"is llama-bench's SQL.*run `llama-bench -o jsonl`"):
        read(path)
