"""The program is run as a person runs it: by its name, in a terminal's environment, with files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any


class Program:
    """The parapet program that PARAPET_PROGRAM names."""

    def __init__(self, path: Path, directory: Path) -> None:
        self.path = path
        self.directory = directory

    def run(
        self,
        *arguments: str | Path,
        env: dict[str, str] | None = None,
        code: int = 0,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [self.path, *map(str, arguments)],
            cwd=self.directory,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=300,
            **options,
        )
        assert result.returncode == code, result.stdout + result.stderr
        return result

    def json(self, *arguments: str | Path, code: int = 0) -> Any:
        result = self.run(*arguments, "--json", code=code)
        assert result.stderr == ""
        return json.loads(result.stdout)

    def error(self, *arguments: str | Path, **options: Any) -> str:
        """Runs what has to be refused; gives the one line on standard error."""
        result = self.run(*arguments, code=2, **options)
        assert result.stdout == ""
        assert result.stderr.startswith("parapet: "), result.stderr
        assert result.stderr.count("\n") == 1 and result.stderr.endswith("\n"), result.stderr
        return result.stderr.removeprefix("parapet: ").rstrip("\n")
