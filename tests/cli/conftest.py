"""Fixtures of the program's tests."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_program import Program


@pytest.fixture(scope="session")
def program_path() -> Path:
    path = os.environ.get("PARAPET_PROGRAM")
    if not path:
        pytest.fail("PARAPET_PROGRAM must name the built program, build/release/cli/parapet")
    return Path(path).resolve()


@pytest.fixture
def program(program_path: Path, tmp_path: Path) -> Program:
    return Program(program_path, tmp_path)


@pytest.fixture
def workload(tmp_path: Path) -> Callable[..., Path]:
    """Writes a workload file: a small dense case with the given fields in addition."""

    def write(name: str = "small.json", /, **fields: Any) -> Path:
        case = {"batch": 2, "num_heads": 4, "seqlen": 48, "head_dim": 16, "dtype": "float32"}
        if "q_lens" in fields:
            del case["batch"], case["seqlen"]
        path = tmp_path / name
        path.write_text(json.dumps(fields if "grid" in fields else case | fields))
        return path

    return write
