"""Exact attention on tensors of NumPy, PyTorch and other DLPack producers.

`flash_attn_func` takes dense batches, `flash_attn_varlen_func` segments of different lengths;
both have FlashAttention-4's arguments and return (out, lse). `check` tells of lengths that calls on
a GPU had to clamp. `capture` records calls.
"""

from parapet._attention import check, flash_attn_func, flash_attn_varlen_func
from parapet._capture import capture
from parapet._ffi import CpuInfo, cpu_info
from parapet._ffi import version as __version__

__all__ = [
    "CpuInfo",
    "__version__",
    "capture",
    "check",
    "cpu_info",
    "flash_attn_func",
    "flash_attn_varlen_func",
]
