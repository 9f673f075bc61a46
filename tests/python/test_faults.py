"""Faults that users of other fused-attention libraries reported, each by its kind.

FA is Dao-AILab/flash-attention, FI flashinfer-ai/flashinfer, PT pytorch/pytorch, HF
huggingface/transformers.
"""

import numpy as np
import pytest
from calls import dense, offsets, packed
from oracle import DTYPES, Call, attend, check, random


def test_rows_past_the_last_segment_are_zero(rng):
    """FA issue 1228: they came back uninitialised."""
    call = packed(rng, [40, 25], [30, 60])
    call.q = np.concatenate([call.q, random(rng, (17, 4, 32), "float32")])
    call.k = np.concatenate([call.k, np.full((9, 2, 32), np.nan, np.float32)])
    call.v = np.concatenate([call.v, np.full((9, 2, 32), np.nan, np.float32)])
    out, lse = check(call)
    assert not out[65:].any()
    assert np.isneginf(lse[:, 65:]).all()


@pytest.mark.parametrize("side", ["q", "k"])
@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([1, 20, 65], "[0]: expected 0, found 1"),
        ([-1, 20, 65], "[0]: expected 0, found -1"),
        ([0, 70, 65], "[1]"),
        ([0, 40, 20], "[2]"),
        ([0, 20, 2**31 - 1], "[2]"),
        ([0, -5, 65], "[1]"),
    ],
)
def test_malformed_offsets_are_refused(rng, side, lengths, message):
    """sgl-flash-attn pull request 47: they were accepted and corrupted the output."""
    call = packed(rng, [40, 25], [30, 35])
    setattr(call, f"cu_seqlens_{side}", np.array(lengths, np.int32))
    with pytest.raises(ValueError, match=f"^cu_seqlens_{side}") as error:
        call.run()
    assert f"cu_seqlens_{side}{message}" in str(error.value)


@pytest.mark.parametrize("used", [-1, 26, 2**31 - 1])
@pytest.mark.parametrize("side", ["q", "k"])
def test_used_lengths_beyond_a_segment_are_refused(rng, side, used):
    call = packed(rng, [40, 25], [40, 25])
    setattr(call, f"seqused_{side}", np.array([40, used], np.int32))
    with pytest.raises(ValueError, match=rf"^seqused_{side}\[1\]: .*{used}"):
        call.run()


def test_one_query_a_segment_and_an_empty_segment(rng):
    """FA issue 1537: refused by a short cut for decoding."""
    h, hk, d = 9, 3, 64
    check(
        Call(
            random(rng, (2, h, d), "bfloat16"),
            random(rng, (8, hk, d), "bfloat16"),
            random(rng, (8, hk, d), "bfloat16"),
            cu_seqlens_q=np.array([0, 1, 1, 2], np.int32),
            cu_seqlens_k=np.array([0, 3, 3, 8], np.int32),
            causal=True,
            softmax_scale=1.0,
        )
    )


@pytest.mark.parametrize("shape", [{"b": 0}, {"sq": 0}, {"sk": 0}, {"sq": 0, "sk": 0}])
@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_tensors(rng, shape, dtype):
    """FA pull request 2776."""
    out, lse = check(dense(rng, dtype, **shape))
    assert not out.any()
    assert np.isneginf(lse).all()


@pytest.mark.parametrize(("q", "k"), [([0, 0], [0, 0]), ([], []), ([0], [7]), ([7], [0])])
def test_empty_segments(rng, q, k):
    check(packed(rng, q, k))


def test_rows_without_keys_have_lse_of_minus_infinity(rng):
    """FI issue 4452: their lse was finite, about -49994."""
    call = packed(rng, [80, 33], [21, 33], "bfloat16")
    call.causal = True
    _, lse = check(call)
    assert np.isneginf(lse[:, :59]).all()
    assert np.isfinite(lse[:, 59:]).all()


@pytest.mark.parametrize("width", [0, 1, 5])
def test_a_window_includes_both_ends(rng, width):
    """HF issue 39408: a caller got one key more than its window."""
    call = dense(rng, b=1, sq=20, sk=20, h=1, hk=1)
    call.window_size, call.softmax_scale = (width, 0), 0.0
    call.v[:] = 0
    call.v[0, 10] = 1  # seen by the queries 10 to 10 + width
    out, _ = check(call)
    np.testing.assert_array_equal(np.flatnonzero(out[0, :, 0, 0]), range(10, 11 + width))


def test_windows_that_mean_causal_agree(rng):
    """FA issue 1133."""
    call = dense(rng, sq=300, sk=300)
    call.causal = True
    expected, _ = check(call)
    for causal, window in (
        (False, (-1, 0)),
        (False, (300, 0)),
        (True, (299, 0)),
        (True, (None, 5)),
    ):
        same = Call(call.q, call.k, call.v, causal=causal, window_size=window)
        np.testing.assert_allclose(same.run()[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", DTYPES)
def test_garbage_beyond_the_used_length_has_no_effect(rng, garbage, dtype):
    """FA issue 1745: a weight of 0 times NaN."""
    call = dense(rng, dtype, b=2, sq=1, sk=3, h=1, hk=1, d=64)
    call.q[:] = 0.5
    call.seqused_k = np.array([1, 3], np.int32)
    clean = call.run()
    call.k[0, 1:], call.v[0, 1:] = garbage, garbage
    for found, expected in zip(call.run(), clean, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("window", [(None, 0), (3, 0), (0, 2)])
def test_garbage_behind_a_mask_has_no_effect(rng, window):
    call = dense(rng, b=1, sq=64, sk=200)
    call.window_size = window
    clean, _ = call.run()
    left, right = window
    for i in (0, 31, 63):
        low = 0 if left is None else max(0, i + 136 - left)
        hidden = np.ones(200, bool)
        hidden[low : i + 136 + right + 1] = False
        dirty = Call(call.q, call.k.copy(), call.v.copy(), window_size=window)
        dirty.k[0, hidden], dirty.v[0, hidden] = np.nan, np.inf
        np.testing.assert_array_equal(dirty.run()[0][0, i], clean[0, i])


@pytest.mark.parametrize("num_splits", [0, 1, 2, 3, 17, 200])
@pytest.mark.parametrize("sq", [1, 9])
def test_splits(rng, num_splits, sq):
    """PT issue 194167, aiter pull request 3641: rows not written, empty splits with weight."""
    call = packed(rng, [sq, 0, sq, sq], [200, 7, 0, 3], "bfloat16")
    call.num_splits = num_splits
    for causal in (False, True):
        call.causal = causal
        check(call)


@pytest.mark.parametrize(("b", "h"), [(65536, 1), (1, 65536)])
def test_more_than_65535_entries_or_heads(rng, b, h):
    """PT issues 146704 and 142228."""
    call = dense(rng, b=b, h=h, hk=h, sq=3, sk=4, d=4)
    out, _ = call.run()
    for part in (np.s_[:2], np.s_[-2:]):
        index = (part,) if b > 1 else (slice(None), slice(None), part)
        piece = Call(call.q[index], call.k[index], call.v[index])
        np.testing.assert_allclose(out[index], attend(piece).out, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_rows_further_apart_than_32_bits(rng, name):
    """FA issue 2611: an offset of 32 bits wrapped."""
    call = dense(rng, "float16", b=1, sq=6, sk=6, h=1, hk=1, d=8)
    expected = call.run()
    distance = 2**29 + 40
    wide = np.zeros(5 * distance + 8, np.float16)  # memory that is never touched costs nothing
    far = np.lib.stride_tricks.as_strided(wide, (1, 6, 1, 8), (0, 2 * distance, 0, 2))
    far[:] = getattr(call, name)
    setattr(call, name, far)
    for found, same in zip(call.run(), expected, strict=True):
        np.testing.assert_array_equal(found, same)


STRIDES = {
    "last dimension transposed": lambda x: np.ascontiguousarray(x.swapaxes(1, -1)).swapaxes(1, -1),
    "heads before rows": lambda x: np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2),
    "every second element": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "every second row": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "backwards": lambda x: np.ascontiguousarray(x[:, ::-1, ::-1, ::-1])[:, ::-1, ::-1, ::-1],
    "part of a wider tensor": lambda x: np.concatenate([x, x], axis=-1)[..., x.shape[-1] :],
    "odd address": lambda x: np.concatenate([x.ravel()[:1], x.ravel()])[1:].reshape(x.shape),
}


@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize("kind", STRIDES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_strides(rng, name, kind, dtype):
    """FA pull request 2777, PT pull request 187506."""
    call = dense(rng, dtype)
    expected = call.run()
    strided = STRIDES[kind](getattr(call, name))
    np.testing.assert_array_equal(strided, getattr(call, name))
    setattr(call, name, strided)
    for found, same in zip(call.run(), expected, strict=True):
        np.testing.assert_array_equal(found, same)


def test_one_value_broadcast_to_all_keys(rng):
    call = dense(rng)
    call.v = np.broadcast_to(call.v[:, :1], call.v.shape)
    check(call)


def test_grouped_heads_equal_repeated_ones(rng):
    """FA pull request 2528: the causal mask took rows for packed heads."""
    call = dense(rng, h=6, hk=2, sq=70, sk=90)
    call.causal = True
    repeated = Call(call.q, call.k.repeat(3, axis=2), call.v.repeat(3, axis=2), causal=True)
    for found, same in zip(call.run(), repeated.run(), strict=True):
        np.testing.assert_allclose(found, same, rtol=1e-5, atol=1e-6)


def test_key_tiles_before_the_window(rng):
    """PT issue 127055: NaN in the rows after a key tile that the window hides."""
    call = dense(rng, b=1, sq=640, sk=640, h=1, hk=1, d=4)
    call.causal, call.window_size = True, (9, 0)
    check(call)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 40.0, 3e4])
def test_large_scores(rng, scale):
    """PT issue 196678: scores near -120, and further."""
    call = dense(rng, sq=65, sk=130)
    call.softmax_scale = scale
    call.q[:, ::2] *= -10
    check(call)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sink_takes_its_share(dtype):
    """modular issue 6198: the sink was left out of the sum."""
    zeros = np.zeros((1, 3, 2, 8), dtype if dtype != "bfloat16" else np.float32)
    call = Call(zeros, zeros, zeros + 1, learnable_sink=np.array([np.log(7), -np.inf], np.float32))
    out, lse = check(call)
    np.testing.assert_allclose(out[0, :, 0], 0.3, rtol=2e-3)
    np.testing.assert_allclose(out[0, :, 1], 1.0)
    np.testing.assert_allclose(lse[0], np.log([[10.0] * 3, [3.0] * 3]), rtol=1e-6)


def test_softcap_is_cap_times_tanh(rng):
    """FA pull request 2402: it was score times tanh."""
    call = dense(rng, b=1, sq=1, sk=2, h=1, hk=1, d=1)
    call.q[:], call.k[0, :, 0, 0], call.softmax_scale, call.softcap = 1, (30, 15), 1.0, 15.0
    _, lse = check(call)
    expected = np.log(np.exp(15 * np.tanh(2.0)) + np.exp(15 * np.tanh(1.0)))
    np.testing.assert_allclose(lse[0, 0, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_bits_on_every_run(rng, dtype):
    """FA issue 2244."""
    call = packed(rng, [100, 1, 40], [300, 900, 40], dtype)
    for call.num_splits in (0, 1, 3):
        first = call.run()
        for _ in range(5):
            for found, same in zip(call.run(), first, strict=True):
                np.testing.assert_array_equal(found, same)


def test_a_segment_does_not_depend_on_the_others(rng):
    lengths = [30, 1, 50, 7]
    keys = [64, 300, 50, 9]
    call = packed(rng, lengths, keys)
    call.causal = True
    together, _ = call.run()
    for b in range(4):
        rows = slice(sum(lengths[:b]), sum(lengths[: b + 1]))
        cols = slice(sum(keys[:b]), sum(keys[: b + 1]))
        alone = Call(
            call.q[rows],
            call.k[cols],
            call.v[cols],
            cu_seqlens_q=offsets(lengths[b : b + 1]),
            cu_seqlens_k=offsets(keys[b : b + 1]),
            causal=True,
        )
        np.testing.assert_array_equal(alone.run()[0], together[rows])


def test_visible_nan_stays_visible(rng):
    call = dense(rng, b=1, sq=40, sk=40)
    call.v[0, 5] = np.nan
    call.causal = True
    out, _ = call.run()
    np.testing.assert_array_equal(np.isnan(out[0, :, 0, 0]), np.arange(40) >= 5)
