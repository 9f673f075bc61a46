"""Recording calls as files that `parapet replay` reads: docs/capture-format.md."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from parapet import _ffi
from parapet._files import whole_or_absent
from parapet._frameworks import Framework

FORMAT = 1


class Capture:
    """Writes one file a call."""

    def __init__(self, names: Iterator[Path]) -> None:
        self._names = names
        self._lock = threading.Lock()
        self.files: list[Path] = []
        """What has been written, in order."""

    def record(
        self,
        function: str,
        framework: Framework,
        tensors: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        """Writes a call: its operands and results (None: absent), and its options."""
        header = {
            "format": FORMAT,
            "parapet": _ffi.version,
            "function": function,
            "framework": framework.version(),
            "options": dict(options),
        }
        arrays = {
            name: _to_numpy(tensor, framework)
            for name, tensor in tensors.items()
            if tensor is not None
        }
        with self._lock:
            path = next(self._names)
        _write(path, arrays, {"parapet": json.dumps(header)})
        self.files.append(path)


def _to_numpy(operand: Any, framework: Framework) -> np.ndarray:
    tensor = _ffi.from_dlpack(operand)
    name = str(tensor.dtype)
    if name == "uint16" and framework.uint16_is_bfloat16:
        name = "bfloat16"
    return np.from_dlpack(_ffi.dense_bits(tensor)).view(np.dtype(name))


def _write(path: Path, arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Writes a safetensors file that is whole or absent."""
    from safetensors.numpy import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_or_absent(path) as written:
        save_file(arrays, written, metadata)


def _file_names(path: Path) -> Iterator[Path]:
    """call.safetensors, call-2.safetensors, call-3.safetensors, ..."""
    yield path
    for number in itertools.count(2):
        yield path.with_stem(f"{path.stem}-{number}")


_number_in_process = itertools.count(1)


def _folder_names(folder: Path) -> Iterator[Path]:
    """Names that no other capture and no other process uses."""
    for number in _number_in_process:
        now = time.strftime("%Y%m%d-%H%M%S")
        yield folder / f"call-{now}-{os.getpid()}-{number:04}.safetensors"


def _from_environment() -> Capture | None:
    folder = os.environ.get("PARAPET_CAPTURE")
    return Capture(_folder_names(Path(folder))) if folder else None


_of_process = _from_environment()
_of_block: ContextVar[Capture | None] = ContextVar("parapet_capture", default=None)


def active_capture() -> Capture | None:
    """Returns what records the calls of this thread, if anything does."""
    return _of_block.get() or _of_process


@contextmanager
def capture(path: str | os.PathLike[str]) -> Iterator[Capture]:
    """Records the attention calls made inside a `with` block, for `parapet replay`.

    Calls of other threads and calls that raise are not recorded. Each file is whole or absent.

    Args:
        path: A name that ends in .safetensors is the file of the first call; later calls go to
            name-2.safetensors, name-3.safetensors, ...; existing files are replaced. Any other
            name is a folder, made if needed, where every call gets a file of its own.

    Yields:
        The capture; its `files` lists what has been written.
    """
    path = Path(path)
    names = _file_names(path) if path.suffix == ".safetensors" else _folder_names(path)
    recording = Capture(names)
    token = _of_block.set(recording)
    try:
        yield recording
    finally:
        _of_block.reset(token)
