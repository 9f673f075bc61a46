"""info and plan."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

WorkloadFile = Callable[..., Path]


def test_info(program: Program) -> None:
    text = program.run("info").stdout
    for word in ("parapet", "backends", "SIMD", "threads", "memory"):
        assert word in text


def test_info_json(program: Program) -> None:
    info = program.json("info")
    assert info["backends"][0] == "cpu"
    cpu = info["cpu"]
    assert cpu["simd_target"] in cpu["simd_targets"]
    assert cpu["threads"] >= 1
    assert cpu["memory_available_bytes"] > 0
    assert all(cache["bytes"] > 0 for cache in cpu["caches"])
    assert re.search(r"threads +1\n", program.run("info", env={"OMP_NUM_THREADS": "1"}).stdout)


def test_nvrtc_beside_the_package(program: Program, program_path: Path, tmp_path: Path) -> None:
    """It is found by where the program lies, whatever the program was called with."""
    nvrtc = program.json("info")["cuda"]["nvrtc_path"]
    if nvrtc is None or ".so.13" not in nvrtc:
        pytest.skip("there is no NVRTC 13")
    package, library = tmp_path / "packages/parapet", tmp_path / "packages/nvidia/cu13/lib"
    package.mkdir(parents=True)
    library.mkdir(parents=True)
    shutil.copy(program_path, package / "parapet")
    (library / "libnvrtc.so.13").symlink_to(nvrtc)
    result = subprocess.run(
        ["a word", "info", "--json"],
        executable=package / "parapet",
        env={key: value for key, value in os.environ.items() if key != "PARAPET_NVRTC"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(result.stdout)["cuda"]["nvrtc_path"]
    assert os.path.samefile(found, nvrtc)
    assert Path(found).parts[: len(tmp_path.parts)] == tmp_path.parts


def test_the_video_call_costs_what_its_report_says(program: Program) -> None:
    (plan,) = program.json("plan", "--workload", "video-dit-124f")["plans"]
    assert round(plan["flop"] * 1e-12, 3) == 15.656
    assert plan["total"]["masked_tiles"] == 0
    assert plan["total"]["visible_pairs"] * 4 * 128 * 56 == plan["flop"]
    assert [segment["seqlen_q"] for segment in plan["segments"]] == [4032] + 6 * [5040] + [1008]


def test_a_mask_skips_tiles(program: Program, workload: WorkloadFile) -> None:
    path = workload(seqlen=1000, causal=True, window_left=99)
    (plan,) = program.json("plan", "-w", path)["plans"]
    total = plan["total"]
    # Row i sees the keys i - 99 to i, those that exist.
    assert total["visible_pairs"] == 2 * (sum(range(1, 100)) + 901 * 100)
    assert total["skipped_tiles"] > total["masked_tiles"] > 0
    assert plan["flop"] == total["visible_pairs"] * 4 * 2 * (16 + 16)
    text = program.run("plan", "-w", path).stdout
    assert f"exactly {plan['flop']}" in text


def test_rows_are_chosen(program: Program) -> None:
    plans = program.json("plan", "-w", "cpu-grid", "--rows", "6,0-1")["plans"]
    assert [plan["row"] for plan in plans] == [6, 0, 1]
    assert len(program.json("plan", "-w", "cpu-grid")["plans"]) == 7


@pytest.mark.parametrize("rows", ["7", "-1", "1-0", "a", "0,,1", "0-", "1e3", " 1", ","])
def test_rows_that_are_not_there(program: Program, rows: str) -> None:
    error = program.error("plan", "-w", "cpu-grid", f"--rows={rows}")
    assert error.startswith("--rows: expected numbers from 0 to 6 as in 0,2,5-7, found ")


def test_a_hint_that_is_too_small_is_a_remark(program: Program) -> None:
    text = program.run("plan", "-w", "video-dit-124f-as-printed").stdout
    assert "max_seqlen_q is 5040, and the longest segment has 5140 rows" in text


def test_empty_and_huge_shapes(program: Program, workload: WorkloadFile) -> None:
    (plan,) = program.json("plan", "-w", workload(seqlen=0))["plans"]
    assert plan["flop"] == 0
    (plan,) = program.json("plan", "-w", workload(q_lens=[0, 3, 2], k_lens=[5, 0, 1]))["plans"]
    assert plan["total"]["visible_pairs"] == 2
    path = workload(batch=1 << 20, seqlen=1, num_heads=(1 << 31) - 1, head_dim=1)
    (plan,) = program.json("plan", "-w", path)["plans"]
    assert plan["flop"] == 4 * (1 << 20) * ((1 << 31) - 1)
    huge = workload(batch=1 << 20, seqlen=(1 << 31) - 1, num_heads=1, head_dim=1)
    assert "fewer than 2^63 FLOPs" in program.error("plan", "-w", huge)


WRONG = {
    "{": "not valid JSON",
    "[1, 2]": "expected an object, found an array",
    '{"a": 1, "a": 2}': '"a" twice',
    '{"heads": 3}': 'unknown key "heads"',
    '{"num_heads": -1, "head_dim": 8, "batch": 1, "seqlen": 8}': "num_heads: expected an integer",
    '{"num_heads": 1e3, "head_dim": 8, "batch": 1, "seqlen": 8}': "num_heads: expected an integer",
    '{"num_heads": 1, "head_dim": 8, "q_lens": [1, -5], "k_lens": [1, 1]}': "q_lens[1]: expected",
    '{"num_heads": 1, "head_dim": 8, "q_lens": [1], "k_lens": [true]}': "k_lens[0]: expected",
    '{"grid": [{"num_heads": 1}]}': 'grid[0]: "head_dim" is missing',
    "[" * 100000: "levels deep",
    '{"\\u001b[31m\\n": 1}': "unknown key",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_workloads(program: Program, text: str) -> None:
    path = program.directory / "wrong.json"
    path.write_text(text)
    for command in (["plan", "-w"], ["demo", "-w"], ["bench"]):
        error = program.error(*command, path)
        assert error.startswith(f"{path}: ")
        assert WRONG[text] in error
        assert "\x1b" not in error


def test_an_endless_workload(program: Program) -> None:
    assert "/dev/zero: larger than" in program.error("plan", "-w", "/dev/zero")
