"""All options at once, drawn by hypothesis."""

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import DTYPES, Array, Call, check, random

lengths = st.integers(0, 12) | st.sampled_from([0, 1, 33, 150])
windows = st.none() | st.integers(-1, 20) | st.just(10**12)


@st.composite
def side(draw: st.DrawFn, batch: int) -> tuple[tuple[int, ...], Array | None, Array | None]:
    """The leading extents of a tensor, its cu_seqlens and its seqused."""
    if draw(st.booleans()):
        rows = draw(st.lists(lengths, min_size=batch, max_size=batch))
        cu_seqlens = np.cumsum([0, *rows], dtype=np.int32)
        extents: tuple[int, ...] = (int(cu_seqlens[-1]) + draw(st.integers(0, 3)),)
    else:
        rows = [draw(lengths)] * batch
        cu_seqlens = None
        extents = (batch, rows[0] if rows else 1)
    if draw(st.booleans()):
        used = np.array([draw(st.integers(0, n)) for n in rows], np.int32)
        return extents, cu_seqlens, used
    return extents, cu_seqlens, None


def restride(draw: st.DrawFn, x: Array) -> Array:
    """The same elements, stored in another order."""
    order = draw(st.permutations(range(x.ndim)))
    flips = tuple(slice(None, None, draw(st.sampled_from([1, 1, -1]))) for _ in range(x.ndim))
    stored = np.ascontiguousarray(x[flips].transpose(order))
    return stored.transpose(np.argsort(order))[flips]


@st.composite
def calls(draw: st.DrawFn) -> Call:
    batch = draw(st.integers(0, 3))
    heads_k = draw(st.integers(1, 3))
    heads = heads_k * draw(st.integers(1, 4))
    d, dv = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    dtype = draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    (rows_q, cu_q, used_q), (rows_k, cu_k, used_k) = draw(side(batch)), draw(side(batch))
    size = draw(st.sampled_from([0.0, 1.0, 1.0, 8.0]))
    sink_dtype = draw(st.none() | st.sampled_from(DTYPES))
    return Call(
        q=restride(draw, random(rng, (*rows_q, heads, d), dtype) * np.dtype(dtype).type(size)),
        k=restride(draw, random(rng, (*rows_k, heads_k, d), dtype)),
        v=restride(draw, random(rng, (*rows_k, heads_k, dv), dtype)),
        cu_seqlens_q=cu_q,
        cu_seqlens_k=cu_k,
        seqused_q=used_q,
        seqused_k=used_k,
        learnable_sink=None if sink_dtype is None else 3 * random(rng, (heads,), sink_dtype),
        softmax_scale=draw(st.none() | st.sampled_from([0.0, 0.1, 1.0, -0.5])),
        causal=draw(st.booleans()),
        window_size=(draw(windows), draw(windows)),
        softcap=draw(st.sampled_from([0.0, 0.0, 0.5, 30.0])),
        num_splits=draw(st.sampled_from([1, 1, 0, 2, 5])),
    )


thorough = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@thorough
@given(calls())
def test_any_call_agrees_with_the_oracle(call):
    check(call)


@settings(thorough, max_examples=100)
@given(calls(), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_garbage_outside_the_segments_has_no_effect(call, garbage):
    def poisoned(x: Array, cu_seqlens: Array | None, used: Array | None) -> Array:
        hidden = np.ones(x.shape, bool)
        batch = len(x) if cu_seqlens is None else len(cu_seqlens) - 1
        for b in range(batch):
            if cu_seqlens is None:
                hidden[b, : x.shape[1] if used is None else used[b]] = False
            else:
                start, end = cu_seqlens[b : b + 2]
                hidden[start : end if used is None else start + used[b]] = False
        return np.where(hidden, x.dtype.type(garbage), x)

    dirty = replace(
        call,
        q=poisoned(call.q, call.cu_seqlens_q, call.seqused_q),
        k=poisoned(call.k, call.cu_seqlens_k, call.seqused_k),
        v=poisoned(call.v, call.cu_seqlens_k, call.seqused_k),
    )
    for found, expected in zip(dirty.run(), call.run(), strict=True):
        np.testing.assert_array_equal(found, expected)


int32 = st.integers(-(2**31), 2**31 - 1)


@settings(thorough, max_examples=200)
@given(
    st.lists(int32 | st.integers(-2, 45), min_size=1, max_size=5),
    st.lists(int32 | st.integers(-2, 45), min_size=1, max_size=5),
    st.none() | st.lists(int32 | st.integers(-2, 45), min_size=0, max_size=5),
)
def test_any_lengths_are_computed_or_refused(cu_q, cu_k, used):
    rng = np.random.default_rng(0)
    call = Call(
        random(rng, (40, 2, 8), "float32"),
        random(rng, (40, 2, 8), "float32"),
        random(rng, (40, 2, 8), "float32"),
        cu_seqlens_q=np.array(cu_q, np.int32),
        cu_seqlens_k=np.array(cu_k, np.int32),
        seqused_k=None if used is None else np.array(used, np.int32),
    )
    refused = None
    try:
        call.run()
    except ValueError as error:
        refused = str(error)
    if refused is None:
        check(call)
    else:
        assert refused.startswith(("cu_seqlens_", "seqused_k"))
