"""Tensors of NumPy, PyTorch and other producers of DLPack; results are of the caller's kind."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from calls import dense, packed
from oracle import DTYPES

import parapet

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")


def to_torch(array):
    if array is None:
        return None
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def same_bits(tensor, array):
    return tensor.dtype == to_torch(array).dtype and torch.equal(tensor, to_torch(array))


def test_torch_is_not_imported():
    """tvm_ffi would import it, wherever it is installed."""
    program = (
        "import sys, numpy as np, parapet\n"
        "x = np.ones((1, 2, 1, 4), np.float32)\n"
        "parapet.flash_attn_func(x, x, x)\n"
        "assert 'torch' not in sys.modules\n"
        "try:\n"
        "    import torch\n"
        "except ModuleNotFoundError as error:\n"
        "    assert 'parapet' not in str(error), error\n"
        "else:\n"
        "    x = torch.from_numpy(x)\n"
        "    assert type(parapet.flash_attn_func(x, x, x)[0]) is torch.Tensor\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_call_imports_nothing():
    """What is imported late makes a process's first call slow."""
    program = (
        "import sys, numpy as np, parapet\n"
        "x = np.ones((1, 2, 1, 4), np.float32)\n"
        "before = set(sys.modules)\n"
        "parapet.flash_attn_func(x, x, x)\n"
        "assert set(sys.modules) == before, set(sys.modules) - before\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_read_only_arrays(rng):
    for dtype in DTYPES:
        call = packed(rng, [20, 30], [60, 11], dtype)
        expected = call.run()
        for name in ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k"):
            getattr(call, name).flags.writeable = False
        for found, same in zip(call.run(), expected, strict=True):
            np.testing.assert_array_equal(found, same)
            assert found.flags.writeable


def test_subclasses_of_arrays(rng, tmp_path):
    call = dense(rng)
    np.save(tmp_path / "q.npy", call.q)
    mapped = np.load(tmp_path / "q.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    out, _ = parapet.flash_attn_func(mapped, call.k, call.v)
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, call.run()[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1])
def test_places_that_no_number_is_read_from(rng, dtype, offset):
    """Fields of packed records, at any address."""
    call = dense(rng, dtype)
    expected = call.run()
    for name in ("q", "k", "v"):
        x = getattr(call, name)
        record = np.dtype([("before", f"V{offset}"), ("x", x.dtype), ("after", "V1")])
        records = np.zeros(x.shape, record)
        records["x"] = x
        setattr(call, name, records["x"])
    for found, same in zip(call.run(), expected, strict=True):
        np.testing.assert_array_equal(found, same)


def test_inputs_are_not_changed(rng):
    call = dense(rng)
    before = [x.copy() for x in (call.q, call.k, call.v)]
    call.run()
    for x, same in zip((call.q, call.k, call.v), before, strict=True):
        np.testing.assert_array_equal(x, same)


@needs_torch
@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_gives_the_same_bits(rng, dtype):
    call = packed(rng, [20, 30], [60, 11], dtype)
    call.seqused_k, call.learnable_sink = np.array([50, 11], np.int32), call.q[0, :, 0].copy()
    expected_out, expected_lse = call.run()
    tensors = {
        name: to_torch(value) if isinstance(value, np.ndarray) else value
        for name, value in call.arguments().items()
    }
    out, lse = parapet.flash_attn_varlen_func(**tensors, return_lse=True)
    assert same_bits(out, expected_out)
    assert same_bits(lse, expected_lse)
    assert out.is_contiguous()
    assert not out.requires_grad


@needs_torch
def test_torch_strides(rng):
    call = dense(rng)
    expected, _ = call.run()
    q = to_torch(call.q).transpose(1, 3).contiguous().transpose(1, 3)
    out, _ = parapet.flash_attn_func(q, to_torch(call.k), to_torch(call.v))
    assert same_bits(out, expected)


@needs_torch
def test_torch_negative_views(rng):
    """Memory of a conjugated tensor's imaginary part holds numbers of the other sign."""
    call = dense(rng)
    call.learnable_sink = call.q[0, 0, :, 0].copy()
    expected, _ = call.run()
    names = ("q", "k", "v", "learnable_sink")
    for name in names:
        tensors = {x: to_torch(getattr(call, x)) for x in names}
        x = tensors[name]
        tensors[name] = torch.complex(x, -x).conj().imag
        assert tensors[name].is_neg()
        assert torch.equal(tensors[name], x)
        out, _ = parapet.flash_attn_func(**tensors)
        assert same_bits(out, expected), name


@needs_torch
@pytest.mark.parametrize("name", ["q", "k", "learnable_sink"])
def test_torch_layouts(rng, name):
    call = dense(rng)
    tensors = {x: to_torch(getattr(call, x)) for x in ("q", "k", "v")}
    tensors[name] = torch.zeros(4).to_sparse()
    with pytest.raises(ValueError, match=f"^{name}: expected layout torch.strided, found torch.sp"):
        parapet.flash_attn_func(**tensors)


@needs_torch
def test_gradients_are_not_silently_lost(rng):
    """FA issue 1817, for a library without a backward."""
    q, k, v = (to_torch(x) for x in (dense(rng).q, dense(rng).k, dense(rng).v))
    expected, _ = parapet.flash_attn_func(q, k, v)
    for name, parameter in (("q", q), ("k", k), ("v", v)):
        parameter.requires_grad_()
        with pytest.raises(NotImplementedError, match=f"^{name}: requires grad"):
            parapet.flash_attn_func(q, k, v, return_lse=True)
        with torch.no_grad():
            assert torch.equal(parapet.flash_attn_func(q, k, v)[0], expected)
        with torch.inference_mode():
            assert torch.equal(parapet.flash_attn_func(q, k, v)[0], expected)
        parameter.requires_grad_(False)
    sink = torch.zeros(4, requires_grad=True)
    with pytest.raises(NotImplementedError, match="^learnable_sink: requires grad"):
        parapet.flash_attn_func(q, k, v, learnable_sink=sink)


@needs_torch
def test_torch_parameters(rng):
    call = dense(rng)
    q = torch.nn.Parameter(to_torch(call.q), requires_grad=False)
    out, _ = parapet.flash_attn_func(q, to_torch(call.k), to_torch(call.v))
    assert type(out) is torch.Tensor
    assert same_bits(out, call.run()[0])


@needs_torch
def test_mixed_frameworks(rng):
    call = dense(rng)
    with pytest.raises(TypeError, match="^k: expected a PyTorch tensor as q is one, found ndarray"):
        parapet.flash_attn_func(to_torch(call.q), call.k, call.v)
    with pytest.raises(TypeError, match="^v: expected a NumPy array as q is one, found Tensor"):
        parapet.flash_attn_func(call.q, call.k, to_torch(call.v))


@needs_torch
@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_torch_dtypes(rng, dtype):
    call = packed(rng, [20, 30], [60, 11])
    q, k, v, cu_q, cu_k = (
        to_torch(x) for x in (call.q, call.k, call.v, call.cu_seqlens_q, call.cu_seqlens_k)
    )
    wrong = getattr(torch, dtype)
    with pytest.raises(ValueError, match=f"^cu_seqlens_k: expected dtype int32, found {dtype}"):
        parapet.flash_attn_varlen_func(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k.to(wrong))
    with pytest.raises(ValueError, match=f"^k: expected dtype float32.*, found {dtype}"):
        parapet.flash_attn_varlen_func(q, k.to(wrong), v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)


@needs_torch
def test_torch_has_no_data_on_other_devices():
    x = torch.zeros(1, 2, 1, 4, device="meta")
    with pytest.raises((ValueError, BufferError, RuntimeError)):
        parapet.flash_attn_func(x, x, x)


class Producer:
    """A tensor of a library that is nothing but DLPack and the array API's namespace."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **kwargs):
        return self.tensor.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __array_namespace__(self):
        return Namespace


class Namespace:
    @staticmethod
    def from_dlpack(tensor):
        return Producer(tensor)


def test_other_producers(rng):
    call = packed(rng, [20, 30], [60, 11], "float16")
    expected_out, expected_lse = call.run()
    tensors = {
        name: Producer(value) if isinstance(value, np.ndarray) else value
        for name, value in call.arguments().items()
    }
    out, lse = parapet.flash_attn_varlen_func(**tensors, return_lse=True)
    assert isinstance(out, Producer)
    np.testing.assert_array_equal(np.from_dlpack(out.tensor), expected_out)
    np.testing.assert_array_equal(np.from_dlpack(lse.tensor), expected_lse)


def test_producers_whose_library_imports_dlpack(rng):
    import tvm_ffi

    call = dense(rng)
    q, k, v = (tvm_ffi.from_dlpack(x) for x in (call.q, call.k, call.v))
    out, _ = parapet.flash_attn_func(q, k, v)
    assert isinstance(out, tvm_ffi.Tensor)
    np.testing.assert_array_equal(np.from_dlpack(out), call.run()[0])


@pytest.mark.parametrize("library", ["array_api_strict", "jax.numpy"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_libraries(rng, library, dtype):
    xp = pytest.importorskip(library)
    if dtype != "float32" and library == "array_api_strict":
        pytest.skip("has no 16-bit floats")
    call = dense(rng, dtype)
    q, k, v = (xp.asarray(x) for x in (call.q, call.k, call.v))
    out, _ = parapet.flash_attn_func(q, k, v)
    assert type(out) is type(q)
    np.testing.assert_array_equal(np.asarray(out), call.run()[0])
