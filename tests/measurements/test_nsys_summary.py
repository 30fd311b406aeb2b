"""Kernel summaries of nsys stats: text, CSV and JSON of several years; totals are in seconds."""

from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import read

FILES = Path(__file__).parent / "files" / "nsys"
SUMMARY = "CUDA GPU Kernel Summary (cuda_gpu_kern_sum): summed over streams"
ALL = "summed over streams"
PREFILL, BOTH = f"prefill only (2,048 tokens): {ALL}", f"prefill + 64 decode steps: {ALL}"
OLD = "CUDA Kernel Statistics (microseconds): summed over streams"

# fmt: off
VALUES = [
    # file                          line  value         launches  name starts with                    includes
    ("preamble_2026.txt",              8, 0.075339544,     51200, "void at::native::unrolled_elem",   SUMMARY),
    ("preamble_2026.txt",              9, 0.071428805,     51200, "void at::native::elementwise",     SUMMARY),
    ("a100_decode.txt",                3, 0.002426413,         3, "fused_decode3_NT_matmul21_silu2_1", ALL),
    ("a100_decode.txt",                4, 0.000718778,         1, "sm80_xmma_gemm",                   ALL),
    ("a100_decode.txt",                5, 0.00026256,          3, "fused_decode3_NT_matmul21_silu2",  ALL),
    ("llama3.1-8b_q4km_prefill.csv",   3, 0.099385786,        32, "flash_attention_prefill_f16",      ALL),
    ("llama3.1-8b_q4km_prefill.csv",   4, 0.037727461,       193, "dequant_q4_k_f16",                 ALL),
    ("llama3.1-8b_q4km_prefill.csv",   5, 0.002682577,         1, "void quantized_gemv<6, float, 32>(", ALL),
    ("llama3.1-8b_q4km_prefill.csv",   6, 0.000992557,        63, "fused_add_rmsnorm_f16",            ALL),
    ("kernels.json",                   3, 0.099385786,        32, "flash_attention_prefill_f16",      ALL),
    ("kernels.json",                   4, 0.037727461,       193, "dequant_q4_k_f16",                 ALL),
    ("two_tables_trimmed.txt",         5, 0.1767,             36, "nvjet_sm121_tst_mma_128x208x64_", PREFILL),
    ("two_tables_trimmed.txt",         6, 0.1567,            108, "nvjet_sm121_tst_mma_192x144x64_", PREFILL),
    ("two_tables_trimmed.txt",        10, 3.4506,           4673, "internal::gemvx::kernel<...>",    BOTH),
    ("two_tables_trimmed.txt",        11, 0.1035,           2304, "flash::flash_fwd_splitkv_kernel", BOTH),
    ("statistics_2020.txt",           13, 0.003024,         1260, "conv_forward_kernel",              OLD),
    ("statistics_2020.txt",           14, 0.000336,            2, "void add<int>(int, int)",          OLD),
]
# fmt: on


@pytest.mark.parametrize(("file", "line", "value", "launches", "name", "includes"), VALUES)
def test_values(*, file, line, value, launches, name, includes):
    """Each row is a kernel's total over all its launches, and says which table it stands in."""
    found = next(one for one in read(FILES / file).records if one.line == line and one.name.startswith(name))
    assert (found.quantity, found.statistic, found.tool) == ("kernel_time_s", "total", "nsys")
    assert found.value == pytest.approx(value, rel=1e-12)
    assert (found.count, found.includes) == (launches, includes)


@pytest.mark.parametrize("file", sorted(path.name for path in FILES.iterdir()))
def test_nothing_else_is_read(file):
    """The table above lists every record of each file."""
    assert len(read(FILES / file).records) == sum(row[0] == file for row in VALUES)


@pytest.mark.parametrize(
    ("file", "version"),
    [("preamble_2026.txt", "2026.1.1"), ("llama3.1-8b_q4km_prefill.csv", "2024.6.2"), ("kernels.json", "2024.6.2")],
)
def test_version(file, version):
    """The preamble names the version in the path of the report's script."""
    assert {one.version for one in read(FILES / file).records} == {version}


HEAD = "Time (%)  Total Time (ns)  Instances  Avg (ns)  Name\n"


def table(rows, head=HEAD):
    """Read rows under a header."""
    return read("kernels.txt", content=(head + rows).encode())


@pytest.mark.parametrize(
    ("unit", "value"), [("ns", 6e-9), ("us", 6e-6), ("\u03bcs", 6e-6), ("ms", 6e-3), ("s", 6.0), ("msec", 6e-3)]
)
def test_time_units(unit, value):
    """--timeunit changes the unit in the header, and nothing else."""
    assert table("9.0  6  3  2  k\n", HEAD.replace("(ns)", f"({unit})")).records[0].value == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        "| Time (%) | Total (ns) | Instances | Avg (ns) | Name |\n|-|-|-|-|-|\n| 9 | 6 | 3 | 2 | k <a, b> |\n",
        "Time (%)\tTotal Time (ns)\tInstances\tAvg (ns)\tName\n9.0\t6\t3\t2\tk <a, b>\n",
        '"Time(%)","Total Time (ns)","Instances","Average","Name"\n"9.0","6","3","2.0","k <a, b>"\n',
        "Time (%)  Total Time (ns)  Instances  GridXYZ  BlockXYZ  Name\n9.0%  6  3  2 1 1  32 1 1  k <a, b>\n",
        "\ufeffTime (%)  Total Time (ns)  Instances  Avg (ns)  Name\n\x1b[1m9.0  6  3  2  k <a, b>\x1b[0m\n\n",
    ],
    ids=["boxed", "tabs", "quoted, average without a unit", "launch shapes", "mark and colours"],
)
def test_other_layouts(text):
    """Layouts differ in what splits the columns; a name may hold spaces and commas."""
    (found,) = read("kernels", content=text.encode()).records
    assert (found.name, found.value, found.count) == ("k <a, b>", pytest.approx(6e-9), 3)


def test_two_tables_of_one_title_are_told_apart():
    """The second table of one title is numbered."""
    one = f" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n{HEAD} 9.0  6  3  2  k\n\n"
    first, second = read("kernels.txt", content=(one * 2).encode()).records
    assert first.includes.startswith("CUDA GPU Kernel Summary (cuda_gpu_kern_sum): ")
    assert second.includes.startswith("CUDA GPU Kernel Summary (cuda_gpu_kern_sum) (table 2): ")


def test_paths_are_no_titles():
    """A line above the table that holds a path or a command is not kept."""
    text = f"$ nsys stats /home/someone/run.nsys-rep\nProcessing [/home/someone/run.sqlite]\n{HEAD}9.0  6  3  2  k\n"
    assert read("kernels.txt", content=text.encode()).records[0].includes == "summed over streams"


def test_other_reports_are_skipped_and_counted():
    """The tables of calls and of copies are named as skipped."""
    skipped = read(FILES / "statistics_2020.txt").skipped
    assert skipped == {"table of another report: only the kernel summary is read": 2}


def test_kernel_without_launches():
    """A row without launches is no measurement."""
    reading = table("9.0  6  3  2  k\n0.0  0  0  0.0  unused\n")
    assert (len(reading), reading.skipped) == (1, {"kernel without launches or time": 1})


# fmt: off
BAD = [
    # text after the header                                message
    ("9.0  16  3  2  k\n",                             r"kernels.txt, line 2: .* = 16 is not `Instances` x .* = 3 x 2"),
    ("9.0  6  3\n",                                        r"line 2: .*row of 3 cells: expected 5"),
    ("9.0  6  3  2  k\nnine  6  3  2  k\n",                r"line 3: .*`Time \(%\)` = 'nine': expected a number"),
    ("9.0  six  3  2  k\n",                                r"line 2: `Total Time \(ns\)` = 'six': expected a number"),
    ("9.0  1.234,5  3  2  k\n",                            r"`Total Time \(ns\)` = '1.234,5': expected a number"),
    ("9.0  -6  3  -2  k\n",                                r"line 2: .*expected no negative number"),
    ("9.0  nan  3  2  k\n",                                r"`Total Time \(ns\)` = 'nan': expected a number"),
    ("",                                                   r"without a record: it holds no measured value"),
    ("0.0  0  0  0.0  unused\n",                           r"without a record: 1 x kernel without launches or time"),
]
# fmt: on


@pytest.mark.parametrize(("rows", "message"), BAD)
def test_broken_rows(rows, message):
    """The message names the line, the column and what was expected."""
    with pytest.raises(InvalidInputError, match=message):
        table(rows)


def test_broken_files():
    """Cut JSON, an unknown unit, a row that lost a quote and a report without kernels are refused in one line."""
    json = (FILES / "kernels.json").read_bytes()
    with pytest.raises(InvalidInputError, match=r"line \d+: JSON ends in the middle: the file is cut"):
        read("k.json", content=json[:-60])
    with pytest.raises(InvalidInputError, match=r"row 2: `Total Time \(ns\)` = 37727461 is not"):
        read("k.json", content=json.replace(b'"Instances": 193', b'"Instances": 93'))
    with pytest.raises(InvalidInputError, match=r"unit of `Total Time \(days\)`: expected one of ns, us, ms, s"):
        table("9.0  6  3  2  k\n", HEAD.replace("(ns)", "(days)"))
    with pytest.raises(InvalidInputError, match=r"line 2: .*row of 6 cells: expected 5"):
        read("k.csv", content=b"Time (%),Total Time (ns),Instances,Avg (ns),Name\n9.0,6,3,2,k<a, b>\n")
    with pytest.raises(InvalidInputError, match=r"without a record: 1 x report without CUDA kernels: profile with"):
        read("k.txt", content=b"SKIPPED: run.sqlite does not contain CUDA kernel data.\n")
