"""bench: figures, its file, its notices."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_program import Program

WorkloadFile = Callable[..., Path]
QUICK = ["--rounds", "2", "--max-seconds", "5"]


@pytest.fixture
def grid(workload: WorkloadFile) -> Path:
    common = {"num_heads": 2, "head_dim": 16, "dtype": "bfloat16"}
    return workload(
        "grid.json",
        name="quick",
        grid=[
            common | {"batch": 2, "seqlen": 64, "causal": True},
            common | {"batch": 1, "seqlen_q": 1, "seqlen_k": 4096, "num_heads": 4},
            common | {"q_lens": [3, 0, 9], "k_lens": [20, 7, 9], "window_left": 4, "softcap": 9},
        ],
    )


def measured(program: Program, *arguments: str | Path) -> Any:
    path = program.directory / "out.json"
    program.run("bench", *arguments, *QUICK, "--json", path)
    return json.loads(path.read_text())


def test_the_file_is_as_documented(program: Program, grid: Path) -> None:
    bench = measured(program, grid, "--dtype", "float16,float32")
    assert bench["schema"] == "parapet-bench"
    assert bench["version"] == 1
    assert bench["machine"]["fma_gflops"] > 0
    assert bench["machine"]["read_gbs"] > 0
    assert isinstance(bench["machine"]["quiet"], bool)
    assert bench["providers"] == {"parapet": program.run("--version").stdout.split()[1]}
    assert bench["skipped"] == []
    results = bench["results"]
    assert [(r["row"], r["dtype"]) for r in results] == [
        (row, dtype) for dtype in ("float32", "float16") for row in range(3)
    ]
    for result in results:
        assert result["workload"] == "quick"
        assert result["provider"] == "parapet"
        assert result["limit"] in ("fma", "read")
        assert result["gflops"] == pytest.approx(result["flop"] * 1e-6 / result["ms"])
        assert result["gbs"] == pytest.approx(result["bytes"] * 1e-6 / result["ms"])
        rate = result["gflops"] if result["limit"] == "fma" else result["gbs"]
        assert result["share"] == pytest.approx(rate / result["limit_rate"])
        assert 1 <= len(result["rounds"]) <= 6
        assert all(set(r) == {"ms", "fma_gflops", "quiet"} for r in result["rounds"])
    causal, decode, packed = results[:3]
    assert causal["flop"] == 2 * 2 * (64 * 65 // 2) * 4 * 16
    assert decode["flop"] == 4 * 4096 * 4 * 16
    assert decode["bytes"] == 4 * (2 * 4 * 16 + 2 * 4096 * 4 * 16)
    assert packed["case"]["cu_seqlens_k"] == [0, 20, 27, 36]
    assert packed["case"]["window_left"] == 4
    assert packed["case"]["softcap"] == 9


def test_a_dtype_that_is_not_given_is_the_workloads(program: Program, grid: Path) -> None:
    assert {r["dtype"] for r in measured(program, grid, "--rows", "0")["results"]} == {"bfloat16"}
    every = measured(program, grid, "--rows", "0", "--dtype", "all")["results"]
    assert [r["dtype"] for r in every] == ["float32", "bfloat16", "float16"]


def test_the_table(program: Program, grid: Path) -> None:
    text = program.run("bench", grid, *QUICK).stdout
    assert "quick, bfloat16" in text
    assert "B2 S64 H2 D16 causal" in text
    assert "3 segments S12/36 H2 D16 window 4,inf softcap 9" in text


def test_comparison_with_an_earlier_run(program: Program, grid: Path) -> None:
    bench = measured(program, grid)
    bench["results"][0]["ms"] = 1000.0
    bench["results"][1]["case"]["head_dim"] += 1  # another case: not comparable
    bench["results"][2]["provider"] = "torch"
    old = program.directory / "old.json"
    old.write_text(json.dumps(bench))
    lines = program.run("bench", grid, *QUICK, "--compare", old).stdout.splitlines()
    rows = [line for line in lines if line.strip()[:1].isdigit()]
    assert " 1000 " in rows[0] and rows[0].endswith("x")
    assert rows[1].split()[-2:] == ["-", "-"]
    assert rows[2].split()[-2:] == ["-", "-"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[]", "expected an object"),
        ("{}", '"schema" is missing'),
        ('{"schema": "other"}', 'schema: expected "parapet-bench", found "other"'),
        ('{"schema": "parapet-bench", "version": 2}', "version: expected 1"),
        ('{"schema": "parapet-bench", "version": 1}', '"results" is missing'),
        ('{"schema": "parapet-bench", "version": 1, "results": [{}]}', "results[0]:"),
    ],
)
def test_wrong_files_to_compare_with(program: Program, grid: Path, text: str, message: str) -> None:
    old = program.directory / "old.json"
    old.write_text(text)
    error = program.error("bench", grid, "--compare", old)
    assert error.startswith(f"{old}: ") and message in error


def test_what_is_too_big_is_skipped_with_the_reason(
    program: Program, workload: WorkloadFile
) -> None:
    path = workload(
        grid=[
            {"batch": 1, "seqlen": 8, "num_heads": 1, "head_dim": 8},
            {"batch": 1, "seqlen": 1 << 20, "num_heads": 1, "head_dim": 256},
            {"batch": 1 << 20, "seqlen": 1 << 14, "num_heads": 16, "head_dim": 128},
        ]
    )
    bench = measured(program, path)
    assert [r["row"] for r in bench["results"]] == [0]
    slow, large = bench["skipped"]
    assert slow["row"] == 1 and "a call, more than --max-seconds 5" in slow["reason"]
    assert large["row"] == 2 and "of memory" in large["reason"]


def test_nothing_is_measured_when_something_is_wrong(program: Program, grid: Path) -> None:
    error = program.error("bench", grid, "no-such-file")
    assert error.startswith("no-such-file: cannot open")
    assert "--rows: expected numbers from 0 to 2" in program.error("bench", grid, "--rows", "3")
    error = program.error("bench", "--device", "cuda", "--compare", "earlier.json")
    assert error == "--compare: not with --device cuda"


def test_the_file_is_written_whole_or_not_at_all(program: Program, grid: Path) -> None:
    arguments = ["bench", grid, "--rows", "0", *QUICK, "--json"]
    result = program.run(*arguments, "no/such/folder/out.json", code=2)
    assert "no/such/folder/out.json: cannot write: No such file" in result.stderr
    program.run(*arguments, "/dev/null")
    assert Path("/dev/null").is_char_device()
    before = set(os.listdir(program.directory))
    program.run(*arguments, "out.json")
    assert set(os.listdir(program.directory)) - before == {"out.json"}


@pytest.mark.parametrize("arguments", [["--peers"], ["--device", "cuda"]])
def test_what_needs_the_python_package(program: Program, arguments: list[str]) -> None:
    env = {"PARAPET_PYTHON": "no-such-python", "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
    error = program.run("bench", *arguments, env=env, code=2)
    assert f"{' '.join(arguments)}: no-such-python cannot import parapet.bench" in error.stderr
    assert "pip install" in error.stderr


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (["--peers"], ["--device", "cpu", "--peers", "torch"]),
        (["--device", "cuda"], ["--device", "cuda"]),
        (["--device", "cuda", "--peers"], ["--device", "cuda", "--peers", "fa2,cudnn"]),
    ],
)
def test_python_gets_the_same_arguments(
    program: Program, grid: Path, place: list[str], expected: list[str]
) -> None:
    package = program.directory / "parapet"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "bench.py").write_text(
        "import json, sys\n"
        "if __name__ == '__main__':\n"
        "  print(json.dumps(sys.argv[1:]))\n"
        "  sys.exit(7)\n"
    )
    env = {"PYTHONPATH": str(program.directory), "PARAPET_PYTHON": "python3"}
    arguments = [grid, "--dtype", "float16,float32", "--rows", "2,0", "--rounds", "3"]
    result = program.run("bench", *arguments, *place, env=env, code=7)
    assert json.loads(result.stdout) == [
        *[str(grid), *expected, "--dtype", "float32,float16", "--row", "2", "--row", "0"],
        *["--rounds", "3", "--max-seconds", "60"],
    ]
