"""The attention functions, with FlashAttention-4's names, order and meaning of arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from parapet import _ffi
from parapet._capture import active_capture
from parapet._frameworks import framework_of
from parapet._options import plain_numbers

Tensor = TypeVar("Tensor")
"""A NumPy array, a PyTorch tensor on a CPU or CUDA device, or another producer of DLPack."""

Window = Sequence[int | None]


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    qv: Tensor | None = None,
    gather_kv_indices: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (None, None),
    learnable_sink: Tensor | None = None,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    score_mod: Any = None,
    score_mod_bwd: Any = None,
    mask_mod: Any = None,
    aux_tensors: Any = None,
    aux_scalars: Any = None,
    block_sparse_tensors: Any = None,
    block_sparse_tensors_bwd: Any = None,
    return_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Computes exact attention, softmax(softmax_scale * q k^T) v, over a dense batch.

    Query head h reads key head h // (H // Hk). A query that sees no key gets output 0 and lse
    -inf. What a query does not see cannot change its result, NaN included.

    On a GPU the call is queued on the current stream of the tensors' library (docs/gpu.md).

    Args:
        q: Queries, (B, Sq, H, D); float32, bfloat16 or float16; any strides.
        k: Keys, (B, Sk, Hk, D), of q's dtype; H is a multiple of Hk.
        v: Values, (B, Sk, Hk, Dv), of q's dtype.
        qv: Not supported yet.
        gather_kv_indices: Not supported yet.
        softmax_scale: Factor on the scores; None: 1 / sqrt(D).
        causal: Query i sees the keys j <= i + Sk - Sq: the last query sees the last key.
        window_size: (left, right): query i sees i + Sk - Sq - left <= j <= i + Sk - Sq + right,
            both ends included; None or -1: unlimited. Causal means right = 0.
        learnable_sink: One logit a head, (H), that takes part in the softmax without a value;
            float32, bfloat16 or float16.
        softcap: c > 0 replaces a score s by c * tanh(s / c); 0: off.
        num_splits: Into how many parts the keys are split, up to 256; 0: the library chooses.
            More than one rounds differently; with 1 the result of a batch entry does not depend
            on the others.
        pack_gqa: A hint for a GPU's kernels; it cannot change the result.
        deterministic: Harmless: results are the same bits on every run with and without it.
        score_mod: Not supported yet.
        score_mod_bwd: Not supported yet.
        mask_mod: Not supported yet.
        aux_tensors: Not supported yet.
        aux_scalars: Not supported yet.
        block_sparse_tensors: Not supported yet.
        block_sparse_tensors_bwd: Not supported yet.
        return_lse: Whether the logarithm of each row's sum of exponentials is returned too.

    Returns:
        (out, lse): out is (B, Sq, H, Dv) of q's dtype, lse (B, H, Sq) float32 or None. They are
        new tensors of the caller's framework.

    Raises:
        TypeError: An argument is not a tensor, not of q's framework, or not a number.
        ValueError: Tensors or options are malformed or do not fit each other.
        NotImplementedError: The call is valid but this version cannot run it.
        MemoryError, RuntimeError: Memory ran out, the caller's framework's or the library's.
    """
    if not (
        qv
        is gather_kv_indices
        is score_mod
        is score_mod_bwd
        is mask_mod
        is aux_tensors
        is aux_scalars
        is block_sparse_tensors
        is block_sparse_tensors_bwd
        is None
    ):
        _refuse_unsupported(locals())
    return _forward(
        "flash_attn_func",
        q,
        k,
        v,
        None,
        None,
        None,
        None,
        learnable_sink,
        softmax_scale,
        causal,
        window_size,
        softcap,
        num_splits,
        return_lse,
    )


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    qv: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    min_seqlen_k: int | None = None,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    gather_kv_indices: Tensor | None = None,
    page_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (None, None),
    learnable_sink: Tensor | None = None,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    score_mod: Any = None,
    score_mod_bwd: Any = None,
    mask_mod: Any = None,
    block_sparse_tensors: Any = None,
    aux_tensors: Any = None,
    aux_scalars: Any = None,
    return_lse: bool = False,
    scheduler_metadata: Any = None,
    seqlen_k_per_split: Tensor | None = None,
    disable_scheduler_metadata: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Computes exact attention over segments of different lengths.

    Queries are packed, segment b being the rows cu_seqlens_q[b] to cu_seqlens_q[b + 1], when
    `cu_seqlens_q` is given, and dense without it; keys likewise by `cu_seqlens_k`. Rows that no
    segment covers or uses get output 0 and lse -inf. On a CPU malformed lengths are refused; on a
    GPU they are clamped into their tensors, and `check` tells of them.

    Args:
        q: Queries, packed (total_q, H, D) or dense (B, Sq, H, D); float32, bfloat16 or float16;
            any strides.
        k: Keys, (total_k, Hk, D) or (B, Sk, Hk, D), of q's dtype; H is a multiple of Hk.
        v: Values, (total_k, Hk, Dv) or (B, Sk, Hk, Dv), of q's dtype.
        qv: Not supported yet.
        cu_seqlens_q: (B + 1), int32, contiguous: from 0, never decreasing, to at most total_q.
        cu_seqlens_k: (B + 1), int32, contiguous: likewise for total_k.
        max_seqlen_q: A hint; a wrong one changes nothing.
        max_seqlen_k: A hint; a wrong one changes nothing.
        min_seqlen_k: A hint; a wrong one changes nothing.
        seqused_q: (B), int32, contiguous: how many rows of each segment are used; None: all.
        seqused_k: (B), int32, contiguous: likewise for keys.
        gather_kv_indices: Not supported yet.
        page_table: Not supported yet.
        softmax_scale: As in `flash_attn_func`, like all that follow up to `return_lse`.
        causal: As there; Sq and Sk are the used lengths of a segment.
        window_size: As there.
        learnable_sink: As there.
        softcap: As there.
        num_splits: As there.
        pack_gqa: As there.
        deterministic: As there.
        score_mod: Not supported yet.
        score_mod_bwd: Not supported yet.
        mask_mod: Not supported yet.
        block_sparse_tensors: Not supported yet.
        aux_tensors: Not supported yet.
        aux_scalars: Not supported yet.
        return_lse: As there.
        scheduler_metadata: Not supported: it is the plan of FlashAttention's own kernels.
        seqlen_k_per_split: Not supported yet.
        disable_scheduler_metadata: Harmless: parapet makes no such metadata.

    Returns:
        (out, lse): out is (total_q, H, Dv) or (B, Sq, H, Dv) of q's dtype, lse (H, total_q) or
        (B, H, Sq) float32, or None. They are new tensors of the caller's framework.

    Raises:
        TypeError: An argument is not a tensor, not of q's framework, or not a number.
        ValueError: Tensors, their contents or options are malformed or do not fit each other.
        NotImplementedError: The call is valid but this version cannot run it.
        MemoryError, RuntimeError: Memory ran out, the caller's framework's or the library's.
    """
    if not (
        qv
        is gather_kv_indices
        is page_table
        is score_mod
        is score_mod_bwd
        is mask_mod
        is block_sparse_tensors
        is aux_tensors
        is aux_scalars
        is scheduler_metadata
        is seqlen_k_per_split
        is None
    ):
        _refuse_unsupported(locals())
    return _forward(
        "flash_attn_varlen_func",
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        seqused_q,
        seqused_k,
        learnable_sink,
        softmax_scale,
        causal,
        window_size,
        softcap,
        num_splits,
        return_lse,
    )


def check() -> None:
    """Waits for the GPUs that calls ran on, and tells of lengths that were not what they should be.

    Lengths in a GPU's memory are not read before a call, which clamps them into their tensors. With
    PARAPET_CHECK=1 in the environment every call on a GPU does this itself.

    Raises:
        ValueError: A call since the last check had cu_seqlens or seqused that point outside their
            tensors; the message names array, index and value.
        RuntimeError: The GPU failed.
    """
    _ffi.check()


_UNSUPPORTED = (
    "qv",
    "gather_kv_indices",
    "page_table",
    "score_mod",
    "score_mod_bwd",
    "mask_mod",
    "aux_tensors",
    "aux_scalars",
    "block_sparse_tensors",
    "block_sparse_tensors_bwd",
    "scheduler_metadata",
    "seqlen_k_per_split",
)


def _refuse_unsupported(arguments: Mapping[str, Any]) -> NoReturn:
    name = next(name for name in _UNSUPPORTED if arguments.get(name) is not None)
    raise NotImplementedError(f"{name}: expected None, as parapet does not support it yet")


def _forward(
    function: str,
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    seqused_q: Any,
    seqused_k: Any,
    learnable_sink: Any,
    softmax_scale: float | None,
    causal: bool,
    window_size: Window,
    softcap: float,
    num_splits: int,
    return_lse: bool,
) -> tuple[Any, Any]:
    framework = framework_of("q", q)
    operand = framework.operand
    operand_q, operand_k, operand_v = operand("q", q), operand("k", k), operand("v", v)
    operands = [
        operand_q,
        operand_k,
        operand_v,
        framework.make_out(operand_q, operand_v),
        framework.make_lse(operand_q) if return_lse else None,
        None if cu_seqlens_q is None else operand("cu_seqlens_q", cu_seqlens_q),
        None if cu_seqlens_k is None else operand("cu_seqlens_k", cu_seqlens_k),
        None if seqused_q is None else operand("seqused_q", seqused_q),
        None if seqused_k is None else operand("seqused_k", seqused_k),
        None if learnable_sink is None else operand("learnable_sink", learnable_sink),
    ]
    try:
        left, right = window_size
    except (TypeError, ValueError):
        raise ValueError(f"window_size: expected (left, right), found {window_size!r}") from None
    options = plain_numbers((softmax_scale, causal, left, right, softcap, num_splits))
    _ffi.forward(framework.uint16_is_bfloat16, *operands, *options, framework.stream(q))
    if (capture := active_capture()) is not None:
        capture.record(
            function,
            framework,
            dict(zip(_ffi.TENSORS, operands, strict=True)),
            dict(zip(_ffi.OPTIONS, options, strict=True)),
        )
    out, lse = operands[3:5]
    return framework.result(out, q), None if lse is None else framework.result(lse, q)
