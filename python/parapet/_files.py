"""Writing files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_or_absent(path: Path) -> Iterator[Path]:
    """Yields a name to write to, in the same folder; what was written becomes `path` at the end.

    A symbolic link stays one. What is no file, such as a pipe, is written to directly.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        written = Path(folder, path.name)
        yield written
        os.replace(written, path)
