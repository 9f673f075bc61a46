"""Packed variable-length attention: three sequences of different lengths in one call."""

import numpy as np

import parapet

rng = np.random.default_rng(0)
cu_seqlens = np.array([0, 5, 5, 12], dtype=np.int32)  # lengths 5, 0 and 7
q = rng.standard_normal((12, 8, 64), dtype=np.float32)
k = rng.standard_normal((12, 2, 64), dtype=np.float32)  # 4 query heads share a key head
v = rng.standard_normal((12, 2, 64), dtype=np.float32)

out, lse = parapet.flash_attn_varlen_func(
    q, k, v, cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens, causal=True, return_lse=True
)
print(out.shape, lse.shape)  # (12, 8, 64) (8, 12)
assert np.allclose(out[0, :4], v[0, 0], atol=1e-6)  # the first row of a sequence sees one key
