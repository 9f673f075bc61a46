"""What is not a valid call says which argument, what was found and what was expected."""

from fractions import Fraction

import numpy as np
import pytest
import tvm_ffi
from calls import dense, packed

import parapet

UNSUPPORTED = {
    parapet.flash_attn_func: (
        "qv gather_kv_indices score_mod score_mod_bwd mask_mod aux_tensors aux_scalars "
        "block_sparse_tensors block_sparse_tensors_bwd"
    ),
    parapet.flash_attn_varlen_func: (
        "qv gather_kv_indices page_table score_mod score_mod_bwd mask_mod aux_tensors aux_scalars "
        "block_sparse_tensors scheduler_metadata seqlen_k_per_split"
    ),
}


@pytest.mark.parametrize(
    ("function", "name"),
    [(function, name) for function, names in UNSUPPORTED.items() for name in names.split()],
)
def test_what_is_not_supported_yet(rng, function, name):
    call = dense(rng)
    with pytest.raises(NotImplementedError, match=f"^{name}: "):
        function(call.q, call.k, call.v, **{name: call.q})


@pytest.mark.parametrize("error", [ValueError, NotImplementedError, RuntimeError])
def test_the_kinds_of_errors_that_the_library_has(error):
    found = tvm_ffi.convert(error("message")).py_error()
    assert type(found) is error
    assert str(found) == "message"


@pytest.mark.parametrize("name", ["q", "k", "v", "seqused_k", "learnable_sink"])
@pytest.mark.parametrize("value", [[1.0], 3, "q", (), object(), np.float32(1)])
def test_what_is_no_tensor(rng, name, value):
    call = dense(rng)
    setattr(call, name, value)
    with pytest.raises(TypeError, match=f"^{name}: expected .* found {type(value).__name__}$"):
        call.run()


def test_a_mask_is_not_lost(rng):
    call = dense(rng)
    call.k = np.ma.masked_array(call.k)
    with pytest.raises(TypeError, match="^k: expected an array without a mask"):
        call.run()


@pytest.mark.parametrize("name", ["q", "k", "v", "learnable_sink"])
@pytest.mark.parametrize("dtype", ["float64", "int32", ">f4", "uint16", "int8", "complex64", "O"])
def test_dtypes_of_numbers(rng, name, dtype):
    call = dense(rng)
    call.learnable_sink = np.zeros(4, np.float32)
    setattr(call, name, getattr(call, name).astype(dtype))
    with pytest.raises(ValueError, match=f"^{name}: expected dtype float32.*, found "):
        call.run()


@pytest.mark.parametrize("name", ["cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k"])
@pytest.mark.parametrize("dtype", ["int64", "uint32", "float32", ">i4", "uint16"])
def test_dtypes_of_lengths(rng, name, dtype):
    call = packed(rng, [20, 30], [20, 30])
    call.seqused_q = call.seqused_k = np.array([20, 30], np.int32)
    setattr(call, name, getattr(call, name).astype(dtype))
    with pytest.raises(ValueError, match=f"^{name}: expected dtype int32, found {dtype}"):
        call.run()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": (2, 53, 2, 16)}, "^k: .*head_dim"),
        ({"k": (2, 53, 3, 32)}, "^v: .*num_heads_k"),
        ({"k": (2, 53, 3, 32), "v": (2, 53, 3, 32)}, "num_heads"),
        ({"k": (3, 53, 2, 32)}, "^k: .*batch"),
        ({"v": (2, 52, 2, 32)}, "^v: .*seqlen_k"),
        ({"q": (37, 4, 32)}, r"^q: expected 4 dimensions .* found \(37, 4, 32\)"),
        ({"q": ()}, "^q: expected 4 dimensions"),
        ({"q": (1, 2, 37, 4, 32)}, "^q: expected at most 4 dimensions"),
        ({"v": ()}, "^v: expected 4 dimensions"),
        ({"learnable_sink": (3,)}, "^learnable_sink: .*num_heads"),
        ({"learnable_sink": (4, 1)}, "^learnable_sink: expected 1 dimension"),
    ],
)
def test_shapes(rng, change, message):
    call = dense(rng)
    for name, shape in change.items():
        setattr(call, name, np.zeros(shape, np.float32))
    with pytest.raises(ValueError, match=message):
        call.run()


def test_dtypes_differ(rng):
    call = dense(rng)
    call.v = call.v.astype(np.float16)
    with pytest.raises(ValueError, match="^v: expected dtype float32 as q's, found float16"):
        call.run()


def test_lengths_with_gaps(rng):
    call = packed(rng, [20, 30], [20, 30])
    call.cu_seqlens_k = np.repeat(call.cu_seqlens_k, 2)[::2]
    with pytest.raises(ValueError, match="^cu_seqlens_k: expected a contiguous tensor"):
        call.run()


@pytest.mark.parametrize(
    ("option", "value", "error", "message"),
    [
        ("softmax_scale", "x", TypeError, "^softmax_scale: expected a number"),
        ("softmax_scale", np.nan, ValueError, "^softmax_scale: expected a finite number"),
        ("softcap", -1.0, ValueError, "^softcap: expected a finite number of at least 0"),
        ("softmax_scale", 1e300, ValueError, "^softmax_scale: .* float32's range, found 1e.300"),
        ("softmax_scale", 10**400, ValueError, "^softmax_scale: .* found one of more than 64 bits"),
        ("softcap", None, TypeError, "^softcap: expected a number, found None"),
        ("softcap", 1e-50, ValueError, "^softcap: .* float32's range, found 1e-50"),
        ("causal", "yes", TypeError, "^causal: expected a bool, found str"),
        ("causal", np.array(True), TypeError, "^causal: expected a bool, found ndarray"),
        ("num_splits", -1, ValueError, "^num_splits: expected 0 to"),
        ("num_splits", 2.5, TypeError, "^num_splits: expected an integer, found float"),
        ("num_splits", 2**40, ValueError, "^num_splits: "),
        ("window_size", 3, ValueError, r"^window_size: expected \(left, right\), found 3"),
        ("window_size", (1, 2, 3), ValueError, r"^window_size: expected \(left, right\)"),
        ("window_size", (-2, 0), ValueError, "^window_left: expected at least -1"),
        ("window_size", (None, 1.5), TypeError, "^window_right: expected an integer or None"),
        ("window_size", (1j, 0), TypeError, "^window_left: expected .* found complex"),
        ("window_size", (2**63, 0), ValueError, "^window_left: .* found one of more than 64 bits"),
    ],
)
def test_options(rng, option, value, error, message):
    call = dense(rng)
    setattr(call, option, value)
    with pytest.raises(error, match=message):
        call.run()


def test_numbers_of_other_kinds(rng):
    call = dense(rng)
    call.softmax_scale, call.causal, call.window_size = 0.5, True, (3, None)
    expected, _ = call.run()
    for half in (np.float64(0.5), np.float16(0.5), Fraction(1, 2)):
        for yes in (1, np.True_, np.int8(1)):
            call.softmax_scale, call.causal = half, yes
            call.window_size = [np.int64(3), None]
            np.testing.assert_array_equal(call.run()[0], expected)
