"""Every option against the oracle."""

import inspect

import numpy as np
import pytest
from calls import dense, offsets, packed
from oracle import DTYPES, Call, check, random

import parapet


@pytest.mark.parametrize("dtype", DTYPES)
def test_dense(rng, dtype):
    check(dense(rng, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_packed(rng, dtype, causal):
    call = packed(rng, [1, 40, 0, 17, 3], [90, 40, 5, 9, 0], dtype)
    call.causal = causal
    check(call)


@pytest.mark.parametrize("packed_side", ["q", "k"])
def test_one_side_packed(rng, packed_side):
    call = dense(rng)
    if packed_side == "q":
        call.q, call.cu_seqlens_q = call.q.reshape(-1, 4, 32), offsets([37, 37])
    else:
        call.k, call.cu_seqlens_k = call.k.reshape(-1, 2, 32), offsets([50, 56])
        call.v = call.v.reshape(-1, 2, 32)
    check(call)


@pytest.mark.parametrize("dtype", DTYPES)
def test_used_lengths(rng, dtype):
    call = packed(rng, [20, 30, 10], [60, 11, 40], dtype)
    call.seqused_q = np.array([20, 0, 4], np.int32)
    call.seqused_k = np.array([33, 11, 0], np.int32)
    out, lse = check(call)
    assert not out[20:50].any()
    assert np.isneginf(lse[:, 20:50]).all()


@pytest.mark.parametrize("window", [(0, 0), (5, 0), (0, 5), (7, 11), (None, 3), (3, None), (-1, 2)])
@pytest.mark.parametrize("causal", [False, True])
def test_windows(rng, window, causal):
    call = dense(rng, sq=61, sk=140)
    call.window_size, call.causal = window, causal
    check(call)


def test_more_queries_than_keys(rng):
    call = dense(rng, sq=50, sk=20)
    call.causal = True
    out, lse = check(call)
    assert not out[:, :30].any()
    assert np.isneginf(lse[:, :, :30]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_softcap_and_scale(rng, dtype):
    call = dense(rng, dtype)
    call.softcap, call.softmax_scale, call.causal = 5.0, 0.7, True
    check(call)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sink_dtype", DTYPES)
def test_sink(rng, dtype, sink_dtype):
    call = dense(rng, dtype, sq=50, sk=20)
    call.learnable_sink, call.causal = 2 * random(rng, (4,), sink_dtype), True
    _, lse = check(call)
    sinks = call.learnable_sink.astype(np.float32)
    np.testing.assert_allclose(lse[:, :, 0], np.broadcast_to(sinks, (2, 4)), rtol=1e-6)


@pytest.mark.parametrize("d", [1, 7, 8, 64, 72, 96, 128, 192, 256, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_head_dims(rng, d, dtype):
    check(dense(rng, dtype, sq=9, d=d))  # SageAttention issue 23


@pytest.mark.parametrize(("d", "dv"), [(64, 32), (32, 64), (192, 128), (5, 9), (128, 1)])
def test_other_value_dims(rng, d, dv):
    call = dense(rng, sq=9, d=d, dv=dv)
    assert check(call)[0].shape == (2, 9, 4, dv)


@pytest.mark.parametrize(("h", "hk"), [(1, 1), (8, 1), (6, 3), (9, 3), (32, 8)])
def test_head_ratios(rng, h, hk):
    call = dense(rng, h=h, hk=hk)
    call.causal = True
    check(call)


@pytest.mark.parametrize("dtype", DTYPES)
def test_decode(rng, dtype):
    call = dense(rng, dtype, b=3, sq=1, sk=700, h=8, hk=2, d=64)
    call.seqused_k, call.causal = np.array([700, 1, 333], np.int32), True
    check(call)


def test_default_scale_is_of_the_key_dim(rng):
    call = dense(rng, d=16, dv=64)
    explicit = Call(call.q, call.k, call.v, softmax_scale=0.25)
    np.testing.assert_array_equal(call.run()[0], explicit.run()[0])


def test_no_lse_unless_asked(rng):
    call = dense(rng)
    out, lse = parapet.flash_attn_func(call.q, call.k, call.v)
    assert lse is None
    np.testing.assert_array_equal(out, call.run()[0])


def test_hints_change_nothing(rng):
    call = packed(rng, [20, 30], [60, 11])
    out, _ = parapet.flash_attn_varlen_func(
        **call.arguments(),
        max_seqlen_q=1,
        max_seqlen_k=7,
        min_seqlen_k=99,
        pack_gqa=True,
        deterministic=True,
        disable_scheduler_metadata=True,
    )
    np.testing.assert_array_equal(out, call.run()[0])


def test_positional_order():
    def names(function):
        return " ".join(inspect.signature(function).parameters)

    assert names(parapet.flash_attn_func) == (
        "q k v qv gather_kv_indices softmax_scale causal window_size learnable_sink softcap "
        "num_splits pack_gqa deterministic score_mod score_mod_bwd mask_mod aux_tensors "
        "aux_scalars block_sparse_tensors block_sparse_tensors_bwd return_lse"
    )
    assert names(parapet.flash_attn_varlen_func) == (
        "q k v qv cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k min_seqlen_k seqused_q "
        "seqused_k gather_kv_indices page_table softmax_scale causal window_size learnable_sink "
        "softcap num_splits pack_gqa deterministic score_mod score_mod_bwd mask_mod "
        "block_sparse_tensors aux_tensors aux_scalars return_lse scheduler_metadata "
        "seqlen_k_per_split disable_scheduler_metadata"
    )
