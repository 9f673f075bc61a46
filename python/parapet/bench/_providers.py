"""What is measured: parapet, and peers that compute the same call."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Protocol

import ml_dtypes
import numpy as np

import parapet
from parapet import _ffi
from parapet.bench._workload import Case, batches

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[], Any]


class UnsupportedError(Exception):
    """A peer cannot compute a case; the message says why."""


@dataclass
class Tensors:
    """A case's data, dense (B, S, H, D) or packed (total, H, D)."""

    q: Any
    k: Any
    v: Any
    sink: Any
    cu_seqlens_q: Any
    cu_seqlens_k: Any

    @classmethod
    def make(
        cls,
        case: Case,
        normal: Callable[..., Any],
        offsets: Callable[[tuple[int, ...]], Any],
    ) -> Tensors:
        """Makes the tensors of a case.

        Args:
            case: Says how many there are and of what shapes.
            normal: Makes a random tensor of a shape.
            offsets: Makes cu_seqlens from lengths.
        """

        def rows(lengths: tuple[int, ...], heads: int, dim: int) -> Any:
            leading = (sum(lengths),) if case.packed else (len(lengths), lengths[0])
            return normal(*leading, heads, dim)

        return cls(
            rows(case.q_lens, case.num_heads, case.head_dim),
            rows(case.k_lens, case.num_heads_k, case.head_dim),
            rows(case.k_lens, case.num_heads_k, case.head_dim_v),
            normal(case.num_heads) if case.options.get("sink") else None,
            offsets(case.q_lens) if case.packed else None,
            offsets(case.k_lens) if case.packed else None,
        )


def random_tensors(case: Case) -> Tensors:
    """Returns normal random data, the same for every provider."""
    rng = np.random.default_rng(0)
    dtype = np.dtype(ml_dtypes.bfloat16 if case.dtype == "bfloat16" else case.dtype)
    return Tensors.make(
        case,
        lambda *shape: rng.standard_normal(shape, dtype=np.float32).astype(dtype),
        lambda lengths: np.array([0, *accumulate(lengths)], np.int32),
    )


class Provider(Protocol):
    """Computes cases."""

    name: str
    version: str

    def prepare(self, case: Case, tensors: Tensors) -> Run:
        """Returns the call that is measured; raises UnsupportedError."""

    def output(self, case: Case, result: Any) -> Any:
        """Returns a result in float32, shaped like the case's q."""


class Parapet:
    """The library through its Python function, on the tensors as they are."""

    name = "parapet"
    version = _ffi.version

    def prepare(self, case: Case, tensors: Tensors) -> Run:
        return partial(
            parapet.flash_attn_varlen_func,
            *(tensors.q, tensors.k, tensors.v),
            cu_seqlens_q=tensors.cu_seqlens_q,
            cu_seqlens_k=tensors.cu_seqlens_k,
            softmax_scale=case.options.get("softmax_scale"),
            causal=case.causal,
            window_size=(case.options.get("window_left"), case.options.get("window_right")),
            learnable_sink=tensors.sink,
            softcap=case.options.get("softcap", 0.0),
        )

    def output(self, case: Case, result: Any) -> Any:
        out = result[0]
        return out.astype(np.float32) if isinstance(out, np.ndarray) else out.float()


class Torch:
    """PyTorch's scaled_dot_product_attention in its favourite layout, (B, H, S, D) contiguous.

    It has no packed calls: segments are computed one after the other.
    """

    name = "torch"

    def __init__(self) -> None:
        self._torch = importlib.import_module("torch")
        self._torch.set_num_threads(parapet.cpu_info().num_threads)
        self.version = str(self._torch.__version__)

    def prepare(self, case: Case, tensors: Tensors) -> Run:
        if case.options.get("softcap"):
            raise UnsupportedError("no softcap")
        if tensors.sink is not None:
            raise UnsupportedError("no sink")
        attend = self._torch.nn.functional.scaled_dot_product_attention
        options = {
            "scale": case.options.get("softmax_scale"),
            "enable_gqa": case.num_heads != case.num_heads_k,
        }
        operands = (tensors.q, tensors.k, tensors.v)
        if not case.packed:
            q, k, v = map(self._heads_first, operands)
            mask = self._mask(case, case.q_lens[0], case.k_lens[0])
            return lambda: attend(q, k, v, **mask, **options)
        segments = [
            (*(self._heads_first(x[at][None]) for x, at in zip(operands, (q, k, k), strict=True)),)
            for q, k in zip(batches(case.q_lens), batches(case.k_lens), strict=True)
        ]
        masks = [
            self._mask(case, *lengths) for lengths in zip(case.q_lens, case.k_lens, strict=True)
        ]
        return lambda: [
            attend(*segment, **mask, **options)
            for segment, mask in zip(segments, masks, strict=True)
        ]

    def _heads_first(self, array: Array) -> Any:
        if array.dtype == ml_dtypes.bfloat16:
            bits = self._torch.from_numpy(array.view(np.int16))
            tensor = bits.view(self._torch.bfloat16)
        else:
            tensor = self._torch.from_numpy(array)
        return tensor.transpose(1, 2).contiguous()

    def _mask(self, case: Case, queries: int, keys: int) -> dict[str, Any]:
        """Arguments for the mask. PyTorch's is_causal aligns the first query with the first key."""
        left, right = case.window
        if left is None and (right is None or (right == 0 and queries == 1)):
            return {}
        if left is None and right == 0 and queries == keys:
            return {"is_causal": True}
        distance = self._torch.arange(keys)[None] - self._torch.arange(queries)[:, None]
        visible = self._torch.ones(queries, keys, dtype=self._torch.bool)
        if left is not None:
            visible &= distance >= keys - queries - left
        if right is not None:
            visible &= distance <= keys - queries + right
        return {"attn_mask": visible}

    def output(self, case: Case, result: Any) -> Array:
        if case.packed:
            return np.concatenate([x[0].transpose(0, 1).float().numpy() for x in result])
        return np.asarray(result.transpose(1, 2).float().numpy(), np.float32)


PEERS: dict[str, Callable[[], Provider]] = {"torch": Torch}
