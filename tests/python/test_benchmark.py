"""The benchmark program, its files (docs/bench-format.md) and their pictures."""

import json
import statistics
import subprocess
import sys

import numpy as np
import pytest

from parapet import report
from parapet.bench import __main__ as bench
from parapet.bench._measure import Round, Rounds, ratio
from parapet.bench._providers import Parapet, random_tensors
from parapet.bench._workload import case_of_result, read_workload

GRID = {
    "name": "small",
    "dtype": "float32",
    "num_heads": 2,
    "head_dim": 8,
    "grid": [
        {"batch": 2, "seqlen": 16},
        {"batch": 1, "seqlen_q": 5, "seqlen_k": 9, "num_heads_k": 1, "causal": True},
        {"q_lens": [3, 0, 4], "k_lens": [7, 2, 1], "window_left": 2, "head_dim_v": 4},
        {"cu_seqlens_q": [0, 6], "k_lens": [6], "softcap": 2.0, "sink": True},
    ],
}


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "small.json"
    path.write_text(json.dumps(GRID))
    return path


def run(*arguments):
    return bench.main([*map(str, arguments), "--rounds", "1", "--wait", "0"])


@pytest.mark.parametrize("name", ["cpu-grid", "video-dit-124f", "llm-decode-gqa", "paper-grid"])
def test_workloads_that_come_with_parapet(name):
    cases = read_workload(name)
    assert all(case.workload == name and case.flop > 0 for case in cases)


def test_the_video_call_costs_what_it_says():
    (case,) = read_workload("video-dit-124f")
    assert case.flop / 1e12 == pytest.approx(15.656, abs=5e-4)
    assert case.label() == "8 segments S35280/116448 H56 D128"


def visible_pairs(case):
    left, right = case.window
    return sum(
        (left is None or j >= i + sk - sq - left) and (right is None or j <= i + sk - sq + right)
        for sq, sk in zip(case.q_lens, case.k_lens, strict=True)
        for i in range(sq)
        for j in range(sk)
    )


def test_flops_are_counted_exactly(workload):
    for case in read_workload(str(workload)):
        per_pair = 2 * (case.head_dim + case.head_dim_v) * case.num_heads
        assert case.flop == per_pair * visible_pairs(case)


def test_bytes_are_those_of_the_tensors(workload):
    for case in read_workload(str(workload), ("bfloat16",)):
        tensors = random_tensors(case)
        out, _ = Parapet().prepare(case, tensors)()
        arrays = (tensors.q, tensors.k, tensors.v, out)
        assert case.bytes == sum(array.nbytes for array in arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_dim": 0}, "case 0: head_dim: expected a positive integer, found 0"),
        ({"dtype": "float64"}, "dtype: expected float32"),
        ({"heads": 2}, "expected no key 'heads'"),
        ({"grid": [{"batch": 1}]}, "seqlen_q: expected a positive integer, found None"),
        ({"grid": [{"q_lens": [1, 2], "k_lens": [3]}]}, "as many segments of k as of q"),
        ({"grid": [{"q_lens": [1, -2], "k_lens": [3, 3]}]}, "q_lens: expected lengths"),
        ({"grid": [{"q_lens": [1]}]}, "expected k_lens or cu_seqlens_k"),
    ],
)
def test_malformed_workloads(workload, change, message, capsys):
    workload.write_text(json.dumps(GRID | change))
    assert run(workload) == 2
    error = capsys.readouterr().err
    assert str(workload) in error
    assert message in error


def test_no_such_workload(capsys):
    assert run("nowhere.json") == 2
    assert "nowhere.json" in capsys.readouterr().err


def test_benchmark_files(workload, tmp_path, capsys):
    file = tmp_path / "bench.json"
    assert run(workload, "--dtype", "float32,float16", "--json", file) == 0
    assert "B1 S5/9 H2/1 D8 causal" in capsys.readouterr().out
    content = json.loads(file.read_text())
    assert content["schema"] == "parapet-bench"
    assert content["version"] == 1
    assert content["providers"].keys() == {"parapet"}
    assert content["machine"].keys() == {
        *("cpu", "threads", "simd_target", "fma_gflops", "read_gbs", "quiet"),
    }
    assert len(content["results"]) == 8
    for result in content["results"]:
        assert result.keys() == {
            *("workload", "row", "case", "dtype", "provider", "flop", "bytes", "rounds", "ms"),
            *("gflops", "gbs", "limit", "limit_rate", "share"),
        }
        assert result["gflops"] == pytest.approx(result["flop"] / result["ms"] / 1e6)
        reached = result["gbs"] if result["limit"] == "read" else result["gflops"]
        assert result["share"] == pytest.approx(reached / result["limit_rate"])
        counted = [r for r in result["rounds"] if r["quiet"]] or result["rounds"]
        assert result["ms"] == statistics.median(r["ms"] for r in counted)
    rebuilt = [case_of_result(result) for result in content["results"]]
    assert [(case.flop, case.label()) for case in rebuilt] == [
        (case.flop, case.label()) for case in read_workload(str(workload), ("float32", "float16"))
    ]


def test_torch_beside_parapet(workload, tmp_path, capsys):
    """PyTorch must compute the same, or the benchmark ends with an error."""
    pytest.importorskip("torch")
    file = tmp_path / "bench.json"
    assert run(workload, "--peers", "torch", "--dtype", "float32,bfloat16", "--json", file) == 0
    content = json.loads(file.read_text())
    providers = [result["provider"] for result in content["results"]]
    assert providers.count("torch") == 6
    assert providers.count("parapet") == 8
    assert {entry["reason"] for entry in content["skipped"]} == {"no softcap"}
    assert "x parapet's time" in capsys.readouterr().out


def test_calls_that_would_take_too_long(workload, tmp_path, capsys):
    file = tmp_path / "bench.json"
    assert run(workload, "--max-seconds", "1e-12", "--json", file) == 0
    content = json.loads(file.read_text())
    assert not content["results"]
    assert len(content["skipped"]) == 4
    assert "more than --max-seconds 1e-12" in capsys.readouterr().out


def test_rounds_that_were_disturbed_do_not_count():
    def rounds(*pairs):
        return Rounds([Round(ms, 100.0, quiet) for ms, quiet in pairs])

    ours = rounds((1.0, True), (1.0, True), (5.0, False), (1.0, True))
    peer = rounds((2.0, True), (4.0, True), (1.0, True), (9.0, False))
    assert ours.ms == 1.0
    assert peer.ms == 2.0
    assert ratio(peer, ours) == 3.0
    busy = rounds((3.0, False), (1.0, False), (2.0, False))
    assert busy.ms == 2.0


def test_overhead(tmp_path, capsys):
    file = tmp_path / "overhead.json"
    file.write_text("an earlier file, which another name still has")
    (tmp_path / "other").hardlink_to(file)
    assert run("--overhead", "--json", file) == 0
    assert "an earlier file" in (tmp_path / "other").read_text()
    assert len(list(tmp_path.iterdir())) == 2
    for entry in json.loads(file.read_text())["overhead"]:
        assert entry["overhead_us"] == entry["python_us"] - entry["kernel_us"]
    assert "packed" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures(workload, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    file, picture = tmp_path / "bench.json", tmp_path / f"bench.{suffix}"
    run(workload, "--dtype", "float32,float16", "--json", file)
    assert report.main([str(file), "-o", str(picture)]) == 0
    start = picture.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if suffix == "png" else b"<?xml" in start


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Expecting"),
        ("[]", "expected a benchmark file"),
        ('{"schema": "other"}', "expected a benchmark file"),
        ('{"schema": "parapet-bench", "version": 2}', "expected version 1, found 2"),
        ('{"schema": "parapet-bench", "version": 1, "results": []}', "expected results"),
    ],
)
def test_what_is_no_benchmark_file(tmp_path, content, message, capsys):
    file = tmp_path / "bench.json"
    file.write_text(content)
    assert report.main([str(file), "-o", str(tmp_path / "bench.png")]) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert message in error


def test_a_picture_needs_matplotlib(tmp_path):
    """It is an optional dependency; nothing else of parapet needs it."""
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import parapet.report\n"
        "parapet.report.draw({}, None)\n"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "pip install 'parapet-attention[report]'" in result.stderr


def test_random_tensors_are_the_same_each_time(workload):
    case = read_workload(str(workload))[0]
    np.testing.assert_array_equal(random_tensors(case).q, random_tensors(case).q)
