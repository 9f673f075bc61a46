"""Exact attention on tensors of NumPy, PyTorch and other DLPack producers.

`flash_attn_func` takes dense batches, `flash_attn_varlen_func` segments of different lengths;
both have FlashAttention-4's arguments and return (out, lse). `capture` records calls.
"""

from parapet._attention import flash_attn_func, flash_attn_varlen_func
from parapet._capture import capture
from parapet._ffi import CpuInfo, cpu_info
from parapet._ffi import version as __version__

__all__ = [
    "CpuInfo",
    "__version__",
    "capture",
    "cpu_info",
    "flash_attn_func",
    "flash_attn_varlen_func",
]
