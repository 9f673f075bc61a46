"""PyTorch tensors on a GPU: the current stream, PyTorch's memory, graphs, errors.

What the kernels compute is tested by gpu_tests, case by case; here are the options once each.
"""

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from calls import dense, offsets, packed
from oracle import Call, check, random

import parapet
from parapet import report
from parapet.bench import __main__ as bench

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no GPU", allow_module_level=True)

DTYPES = ("bfloat16", "float16")


def to_gpu(array, device="cuda"):
    if not isinstance(array, np.ndarray):
        return array
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).to(device).view(torch.bfloat16)
    return torch.from_numpy(array).to(device)


def to_numpy(tensor, like):
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).cpu().numpy().view(like.dtype)
    return tensor.cpu().numpy()


@dataclass
class GpuCall(Call):
    """A call whose tensors are copied to the GPU, and its results back."""

    def tensors(self):
        return {name: to_gpu(value) for name, value in self.arguments().items()}

    def run(self):
        out, lse = parapet.flash_attn_varlen_func(**self.tensors(), return_lse=True)
        return to_numpy(out, self.q), to_numpy(lse, self.q)


def on_gpu(call):
    return GpuCall(**call.arguments())


def check_on_gpu(call):
    # The kernels add up the weights that they multiply with v, which are rounded.
    result = check(on_gpu(call), lse_dtype=call.q.dtype.name)
    parapet.check()
    return result


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def int32(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [40, 64, 128, 256])
def test_dense(rng, dtype, d):
    check_on_gpu(dense(rng, dtype, d=d))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_packed(rng, dtype, causal):
    call = packed(rng, [1, 40, 0, 170, 3], [90, 40, 5, 209, 0], dtype)
    call.causal = causal
    check_on_gpu(call)


def test_used_lengths(rng):
    call = packed(rng, [20, 30, 10], [60, 11, 40], "bfloat16")
    call.seqused_q = np.array([20, 0, 4], np.int32)
    call.seqused_k = np.array([33, 11, 0], np.int32)
    check_on_gpu(call)


@pytest.mark.parametrize("window", [(0, 0), (5, 0), (7, 11), (None, 3), (30, None)])
def test_windows(rng, window):
    call = dense(rng, "bfloat16", sq=61, sk=140)
    call.window_size = window
    check_on_gpu(call)


def test_options_together(rng):
    call = dense(rng, "float16", sq=70, sk=90, h=8, hk=2, dv=64)
    call.causal, call.window_size = True, (40, None)
    call.softcap, call.softmax_scale = 5.0, 0.3
    call.learnable_sink = random(rng, (8,), "float32")
    check_on_gpu(call)


def test_strides(rng):
    q, k, v = (normal(2, 4, 50, 64).transpose(1, 2) for _ in range(3))
    expected, _ = parapet.flash_attn_func(q.contiguous(), k.contiguous(), v.contiguous())
    assert torch.equal(parapet.flash_attn_func(q, k, v)[0], expected)
    fused = normal(2, 50, 3, 4, 64)
    out, _ = parapet.flash_attn_func(*fused.unbind(2))
    expected, _ = parapet.flash_attn_func(*(x.contiguous() for x in fused.unbind(2)))
    assert torch.equal(out, expected)


def test_results_are_ordinary_tensors():
    q = normal(1, 33, 2, 64)
    out, lse = parapet.flash_attn_func(q, q, q, return_lse=True)
    assert type(out) is type(lse) is torch.Tensor
    assert out.device == lse.device == q.device and out.dtype == q.dtype
    assert out.is_contiguous() and lse.shape == (1, 2, 33) and lse.dtype == torch.float32
    assert parapet.flash_attn_func(q, q, q)[1] is None


def test_nothing_to_compute():
    empty = normal(0, 2, 64)
    out, lse = parapet.flash_attn_varlen_func(
        empty, empty, empty, cu_seqlens_q=int32([0]), cu_seqlens_k=int32([0]), return_lse=True
    )
    assert out.shape == (0, 2, 64) and lse.shape == (2, 0)


# ---- Streams, memory, graphs ---------------------------------------------------------------------


def ragged(lengths):
    cu_seqlens = int32(offsets(lengths))
    q, k, v = (normal(sum(lengths), 4, 64) for _ in range(3))
    return q, k, v, {"cu_seqlens_q": cu_seqlens, "cu_seqlens_k": cu_seqlens}


def test_the_current_stream():
    """A call comes after what its stream was given before, and does not wait for it."""
    q, k, v, lengths = ragged([300, 20, 500])
    expected, _ = parapet.flash_attn_varlen_func(q, k, v, **lengths)
    late = torch.empty_like(q)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late.fill_(float("nan"))
        torch.cuda._sleep(200_000_000)  # cycles: a tenth of a second
        late.copy_(q)
        out, _ = parapet.flash_attn_varlen_func(late, k, v, **lengths)
        assert not stream.query(), "the call waited for its stream"
        copy = out.clone()
    stream.synchronize()
    assert torch.equal(copy, expected)


OLDER_TORCH = """
import torch
del torch.Tensor.__dlpack_c_exchange_api__
import parapet
q = torch.randn(300, 4, 64, device="cuda", dtype=torch.bfloat16)
cu = torch.tensor([0, 100, 300], dtype=torch.int32, device="cuda")
expected = parapet.flash_attn_varlen_func(q, q, q, cu_seqlens_q=cu, cu_seqlens_k=cu)[0].clone()
late = torch.full_like(q, float("nan"))
torch.cuda.synchronize()
with torch.cuda.stream(torch.cuda.Stream()) as stream:
    torch.cuda._sleep(200_000_000)
    late.copy_(q)
    out, _ = parapet.flash_attn_varlen_func(late, q, q, cu_seqlens_q=cu, cu_seqlens_k=cu)
    copy = out.clone()
torch.cuda.synchronize()
assert torch.equal(copy, expected)
"""


def run_program(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_current_stream_of_an_older_torch():
    """Before 2.10 PyTorch could not tell its stream to tvm_ffi."""
    result = run_program(OLDER_TORCH)
    assert result.returncode == 0, result.stderr


def test_memory_comes_from_torch():
    lengths = [16] * 4000
    q, k, v, offsets_ = ragged(lengths)

    def call():
        return parapet.flash_attn_varlen_func(q, k, v, **offsets_)[0]

    results = [call()]
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(10):
        results.clear()
        results.append(call())
    assert torch.cuda.memory_allocated() == held
    assert torch.cuda.max_memory_allocated() - held >= 8 * len(lengths), "the list of tiles"


def test_a_graph_follows_the_lengths():
    q, k, v, lengths = ragged([200, 30, 0, 270])
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out, lse = parapet.flash_attn_varlen_func(q, k, v, **lengths, return_lse=True)
    for replayed in ([200, 30, 0, 270], [1, 1, 1, 497], [0, 0, 500, 0], [10, 20, 30, 40]):
        lengths["cu_seqlens_q"].copy_(int32(offsets(replayed)))
        other = torch.cuda.Stream()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            out.fill_(float("nan"))
            graph.replay()
        torch.cuda.current_stream().wait_stream(other)
        expected = parapet.flash_attn_varlen_func(q, k, v, **lengths, return_lse=True)
        assert torch.equal(out, expected[0])
        assert torch.equal(lse, expected[1])
    parapet.check()


def test_threads_with_streams_of_their_own():
    q, k, v, lengths = ragged([100, 300, 7])
    expected, _ = parapet.flash_attn_varlen_func(q, k, v, **lengths)
    torch.cuda.synchronize()
    wrong = []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()) as stream:
            for _ in range(100):
                out, _ = parapet.flash_attn_varlen_func(q, k, v, **lengths)
                if not torch.equal(out, expected):
                    wrong.append(stream)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_fragmented_memory():
    """Tensors in the holes that others left, as in a process that has run for a while."""
    q, k, v, lengths = ragged([403, 504, 504, 504, 101])
    expected, _ = parapet.flash_attn_varlen_func(q, k, v, **lengths)
    blocks = [
        torch.full((n,), float("nan"), device="cuda", dtype=torch.bfloat16)
        for n in np.random.default_rng(1).integers(1, 2 * q.numel(), 600)
    ]
    del blocks[::2]
    for _ in range(20):
        again = [x.clone() for x in (q, k, v)]
        out, _ = parapet.flash_attn_varlen_func(*again, **lengths)
        assert torch.equal(out, expected)
        blocks += [out, *again[:2]]
    parapet.check()


def test_the_current_device_stays():
    device = torch.cuda.current_device()
    q = normal(1, 20, 2, 64)
    parapet.flash_attn_func(q, q, q)
    parapet.check()
    assert torch.cuda.current_device() == device


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_another_device():
    q, k, v, lengths = ragged([100, 300, 7])
    expected, _ = parapet.flash_attn_varlen_func(q, k, v, **lengths)
    there = [x.to("cuda:1") for x in (q, k, v)]
    lengths = {name: x.to("cuda:1") for name, x in lengths.items()}
    with torch.cuda.stream(torch.cuda.Stream("cuda:1")):
        torch.cuda.set_device(0)
        out, _ = parapet.flash_attn_varlen_func(*there, **lengths)
        assert torch.cuda.current_device() == 0
    torch.cuda.synchronize("cuda:1")
    assert out.device.index == 1
    assert torch.equal(out.to("cuda:0"), expected)
    with pytest.raises(ValueError, match="^k: expected"):
        parapet.flash_attn_varlen_func(there[0], k, there[2], **lengths)


# ---- Errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "entry"),
    [
        ("cu_seqlens_q", [0, 100, 90, 300], "[2]"),
        ("cu_seqlens_q", [0, 100, 200, 301], "[3]"),
        ("cu_seqlens_k", [-1, 100, 200, 300], "[0]"),
        ("seqused_k", [100, 1000, 100], "[1]"),
    ],
)
def test_check_names_the_entry(name, values, entry):
    q = normal(300, 2, 64)
    lengths = dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"), int32([0, 100, 200, 300]))
    lengths[name] = int32(values)
    out, _ = parapet.flash_attn_varlen_func(q, q, q, **lengths)
    assert out.isfinite().all()
    value = values[int(entry[1])]
    with pytest.raises(ValueError, match=rf"^{name}\{entry}: expected .*, found {value};"):
        parapet.check()
    parapet.check()


def test_checks_every_call_when_asked_to():
    program = (
        "import torch, parapet\n"
        "q = torch.ones(300, 2, 64, device='cuda', dtype=torch.float16)\n"
        "cu = torch.tensor([0, 100, 400], dtype=torch.int32, device='cuda')\n"
        "try:\n"
        "    parapet.flash_attn_varlen_func(q, q, q, cu_seqlens_q=cu, cu_seqlens_k=cu)\n"
        "except ValueError as error:\n"
        "    assert str(error).startswith('cu_seqlens_q[2]: expected'), error\n"
        "else:\n"
        "    raise AssertionError('no error')\n"
    )
    result = run_program(program, PARAPET_CHECK="1")
    assert result.returncode == 0, result.stderr


def test_what_a_gpu_does_not_run():
    x = normal(1, 4, 2, 64)
    single = x.float()
    with pytest.raises(NotImplementedError, match="^q: expected float16 or bfloat16 on a GPU"):
        parapet.flash_attn_func(single, single, single)
    wide = normal(1, 4, 2, 512)
    with pytest.raises(NotImplementedError, match="^q: expected a head dim on a GPU .*, found 512"):
        parapet.flash_attn_func(wide, wide, wide)
    with pytest.raises(NotImplementedError, match="^num_splits: expected 0 or 1 on a GPU"):
        parapet.flash_attn_func(x, x, x, num_splits=2)
    with pytest.raises(ValueError, match="^k: expected .*cuda:0.*, found .*cpu"):
        parapet.flash_attn_func(x, x.cpu(), x)
    cu = int32([0, 4]).long()
    with pytest.raises(ValueError, match="^cu_seqlens_q: expected dtype int32, found int64"):
        parapet.flash_attn_varlen_func(x[0], x[0], x[0], cu_seqlens_q=cu, cu_seqlens_k=cu)


def test_no_compiler(tmp_path):
    program = (
        "import torch, parapet\n"
        "q = torch.ones(1, 4, 2, 64, device='cuda', dtype=torch.float16)\n"
        "try:\n"
        "    parapet.flash_attn_func(q, q, q)\n"
        "except RuntimeError as error:\n"
        "    assert 'has to be compiled: NVRTC 12.0 or newer' in str(error), error\n"
        "    assert 'pip install nvidia-cuda-nvrtc' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('no error')\n"
    )
    result = run_program(
        program,
        PARAPET_PRECOMPILED_DIR=str(tmp_path),
        PARAPET_CACHE_DIR=str(tmp_path / "cache"),
        PARAPET_NVRTC=str(tmp_path / "libnvrtc.so"),
    )
    assert result.returncode == 0, result.stderr


# ---- Beside others -------------------------------------------------------------------------------


def flash_attention_2(q, k, v, lengths, causal):
    longest = [int(x.diff().max()) for x in lengths.values()]
    return torch.ops.aten._flash_attention_forward(
        q, k, v, *lengths.values(), *longest, 0.0, causal, False
    )[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
def test_as_exact_as_flash_attention_2(causal, d):
    lengths = [1000, 37, 0, 2048, 513]
    cu_seqlens = int32(offsets(lengths))
    both = {"cu_seqlens_q": cu_seqlens, "cu_seqlens_k": cu_seqlens}
    q, k, v = (normal(sum(lengths), heads, d) for heads in (8, 2, 2))
    out, _ = parapet.flash_attn_varlen_func(q, k, v, **both, causal=causal)
    theirs = flash_attention_2(q, k, v, both, causal)
    start = 0
    for length in filter(None, lengths):
        at = slice(start, start := start + length)
        exact = torch.nn.functional.scaled_dot_product_attention(
            *(x[at].transpose(0, 1)[None].double() for x in (q, k, v)),
            is_causal=causal,
            enable_gqa=True,
        )[0].transpose(0, 1)
        ours, other = ((x[at].double() - exact).square().mean().sqrt() for x in (out, theirs))
        assert ours <= 1.2 * other, f"{length}: {ours} beside {other}"


def test_a_captured_call(rng, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    call = on_gpu(packed(rng, [20, 30], [60, 11], "bfloat16"))
    with parapet.capture(tmp_path / "call.safetensors"):
        out, lse = call.run()
    arrays = safetensors.load_file(tmp_path / "call.safetensors")
    for name, expected in {"q": call.q, "v": call.v, "out": out, "lse": lse}.items():
        np.testing.assert_array_equal(arrays[name], expected)


def test_strided_captured_call(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    q = normal(2, 4, 50, 64, dtype=torch.float16).transpose(1, 2)[:, ::2]
    with parapet.capture(tmp_path / "call.safetensors"):
        parapet.flash_attn_func(q, q, q)
    found = safetensors.load_file(tmp_path / "call.safetensors")["q"]
    np.testing.assert_array_equal(found, q.cpu().numpy())


@pytest.mark.parametrize("library", ["cupy", "jax.numpy"])
def test_other_libraries(rng, library):
    xp = pytest.importorskip(library)
    call = dense(rng, "float16", sq=300, sk=300, d=64)
    expected, _ = parapet.flash_attn_func(*map(to_gpu, (call.q, call.k, call.v)), causal=True)
    q, k, v = (xp.asarray(x) for x in (call.q, call.k, call.v))
    for _ in range(10):
        out, _ = parapet.flash_attn_func(q * 1, k * 1, v * 1, causal=True)
        assert type(out) is type(q)
        found = (out + 0).get() if library == "cupy" else np.asarray(out + 0)
        np.testing.assert_array_equal(found, expected.cpu().numpy())


def test_benchmark(tmp_path, capsys):
    workload, file = tmp_path / "small.json", tmp_path / "bench.json"
    grid = [
        {"batch": 2, "seqlen": 300, "causal": True},
        {"q_lens": [100, 0, 40], "k_lens": [200, 30, 40], "causal": True},
        {"batch": 1, "seqlen": 128, "softcap": 2.0},
        {"batch": 1, "seqlen": 128, "head_dim": 512},
    ]
    workload.write_text(json.dumps({"num_heads": 4, "head_dim": 64, "grid": grid}))
    options = ["--device", "cuda", "--rounds", "1", "--wait", "0", "--json", str(file)]
    assert bench.main([str(workload), *options, "--peers", "fa2,cudnn"]) == 0
    assert "x parapet's time" in capsys.readouterr().out
    content = json.loads(file.read_text())
    assert content["machine"]["gpu"] == torch.cuda.get_device_name()
    by_provider = {name: [] for name in ("parapet", "fa2", "cudnn")}
    for result in content["results"]:
        by_provider[result["provider"]].append(result["row"])
        assert result["ms"] > 0 and result["call_ms"] > 0
    assert by_provider == {"parapet": [0, 1, 2], "fa2": [0, 1], "cudnn": [0]}
    assert {entry["row"] for entry in content["skipped"] if entry["provider"] == "parapet"} == {3}
    pytest.importorskip("matplotlib")
    assert report.main([str(file), "-o", str(tmp_path / "bench.svg")]) == 0


def test_overhead(capsys):
    assert bench.main(["--overhead", "--device", "cuda"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["torch"] * 3
