"""The first thing that a new user runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

WorkloadFile = Callable[..., Path]


def test_the_video_call_is_right(program: Program) -> None:
    text = program.run("demo", "--heads", "2").stdout
    assert "video-dit-124f" in text
    assert "2 of 56 heads" in text
    assert "PASSED: every checked row is right." in text


def test_json(program: Program) -> None:
    demo = program.json("demo", "--heads", "1", "--threads", "1")
    assert demo["passed"] is True
    assert demo["threads"] == 1
    assert demo["heads_of_workload"] == 56
    assert demo["case"]["num_heads"] == 1
    assert demo["case"]["cu_seqlens_q"][-1] == 35280
    assert demo["flop"] == pytest.approx(15.656e12 / 56, rel=1e-4)
    assert demo["gflops"] == pytest.approx(demo["flop"] * 1e-9 / demo["seconds"])
    check = demo["check"]
    assert check["wrong_rows"] == 0
    assert check["rows"] >= 8 * 2  # first and last of each segment
    assert check["worst_out"]["error"] <= check["worst_out"]["allowed"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_other_calls(program: Program, workload: WorkloadFile, dtype: str) -> None:
    path = workload(
        dtype=dtype,
        q_lens=[5, 0, 70, 1],
        k_lens=[9, 4, 30, 300],
        num_heads=6,
        num_heads_k=2,
        head_dim_v=24,
        causal=True,
        window_left=40,
        softcap=20,
        sink=True,
    )
    demo = program.json("demo", "-w", path)
    assert demo["passed"] is True
    assert demo["case"]["num_heads"] == 6
    assert program.json("demo", "-w", path, "--heads", "3")["case"]["num_heads_k"] == 1


def test_wrong_numbers_of_heads(program: Program, workload: WorkloadFile) -> None:
    path = workload(num_heads=6, num_heads_k=2)
    assert "expected a multiple of 3 up to 6" in program.error("demo", "-w", path, "--heads", "4")
    assert "expected a multiple of 3 up to 6" in program.error("demo", "-w", path, "--heads", "9")


def test_a_case_of_a_grid(program: Program) -> None:
    demo = program.json("demo", "-w", "cpu-grid", "--row", "5")
    assert demo["case"]["causal"] is True
    assert "--row: expected a number from 0 to 6" in program.error(
        "demo", "-w", "cpu-grid", "--row", "7"
    )


def test_a_gpu_or_a_reason(program: Program, workload: WorkloadFile) -> None:
    gpus = program.json("info")["cuda"]["gpus"]
    path = workload(q_lens=[500, 0, 70], k_lens=[900, 4, 300], dtype="bfloat16", causal=True)
    if any(gpu["supported"] for gpu in gpus):
        demo = program.json("demo", "-w", path, "--device", "cuda")
        assert demo["passed"] is True
        assert demo["device"] in [gpu["name"] for gpu in gpus]
    else:
        assert program.error("demo", "-w", path, "--device", "cuda").startswith("--device cuda: ")


def test_more_than_the_memory_is_refused(program: Program, workload: WorkloadFile) -> None:
    path = workload(batch=1000, seqlen=1 << 16, num_heads=64, head_dim=128)
    error = program.error("demo", "-w", path, "--heads", "64")
    assert "of memory, and" in error
