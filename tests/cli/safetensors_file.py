"""Writes captures, right and wrong ones, without the safetensors package: it refuses wrong ones."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

NAMES = {
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    np.dtype(ml_dtypes.bfloat16): "BF16",
    np.dtype(np.int32): "I32",
}


def container(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def capture_bytes(
    tensors: Mapping[str, np.ndarray],
    options: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> bytes:
    header: dict[str, Any] = {
        "__metadata__": {
            "parapet": json.dumps({"format": 1, "options": dict(options or {}), **metadata})
        }
    }
    data = b""
    for name, tensor in tensors.items():
        block = np.ascontiguousarray(tensor).tobytes()
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(block)],
        }
        data += block
    return container(json.dumps(header).encode(), data)


def write_capture(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    options: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Path:
    path.write_bytes(capture_bytes(tensors, options, **metadata))
    return path
