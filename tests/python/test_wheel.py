"""The wheel as a user gets it, in a fresh environment of the oldest and the newest Python here.

PARAPET_WHEEL names the wheel; `./dev test python` builds it.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import parapet

WHEEL = os.path.abspath(os.environ.get("PARAPET_WHEEL", ""))
PROGRAM = """
import sys
import numpy as np, parapet
x = np.random.default_rng(0).standard_normal((2, 9, 4, 8)).astype(np.float32)
out, lse = parapet.flash_attn_func(x, x, x, causal=True, return_lse=True)
assert out.shape == x.shape and lse.shape == (2, 4, 9)
np.testing.assert_allclose(out[:, 0], x[:, 0], rtol=1e-5)
assert "torch" not in sys.modules
print(parapet.__version__)
"""

pytestmark = pytest.mark.skipif(
    not os.path.isfile(WHEEL), reason="PARAPET_WHEEL does not name a wheel"
)


def pythons() -> list[str]:
    """The oldest and the newest Python that parapet supports and this machine has."""
    found = {sys.version_info[1]: sys.executable}
    pyenv = Path.home() / ".pyenv" / "versions"
    for minor in range(10, 20):
        candidates = [shutil.which(f"python3.{minor}"), *pyenv.glob(f"3.{minor}.*/bin/python3")]
        for path in map(str, filter(None, candidates)):
            # A shim of pyenv can be there without its Python, and a Python without ensurepip.
            check = [path, "-c", "import ensurepip, venv"]
            if subprocess.run(check, capture_output=True).returncode == 0:
                found.setdefault(minor, path)
    return [found[minor] for minor in sorted({min(found), max(found)})]


@pytest.mark.parametrize("python", pythons())
def test_a_fresh_environment(python, tmp_path):
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    bin_ = tmp_path / "venv" / "bin"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PARAPET"))}

    def run(*command):
        result = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    run(bin_ / "pip", "install", "--quiet", "--disable-pip-version-check", WHEEL)
    assert run(bin_ / "python", "-c", PROGRAM).strip() == parapet.__version__
    assert parapet.__version__ in run(bin_ / "parapet", "info")
    assert "cpu-grid" in run(bin_ / "parapet", "bench", "--help")
    assert "cpu-grid" in run(bin_ / "python", "-m", "parapet.bench", "--help")


def test_one_wheel_for_all_pythons():
    name = Path(WHEEL).name
    assert name.startswith(f"parapet_attention-{parapet.__version__}-py3-none-linux")


def test_what_the_wheel_holds():
    files = zipfile.ZipFile(WHEEL).namelist()
    info = f"parapet_attention-{parapet.__version__}"
    inside = ("parapet/", f"{info}.dist-info/", f"{info}.data/scripts/parapet")
    assert not [file for file in files if not file.startswith(inside)]
    suffixes = {Path(file).suffix for file in files if file.startswith("parapet/")}
    assert {".py", ".typed", ".so", ".json"} <= suffixes
    assert any(file.endswith("LICENSE") for file in files)


def test_the_wheel_brings_its_libraries(tmp_path):
    """What its code is linked to is in the wheel, in tvm_ffi, or on every Linux with Python."""
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("there is no readelf")
    zipfile.ZipFile(WHEEL).extractall(tmp_path)
    folder = tmp_path / "parapet"
    for file in ("libparapet_ffi.so", "parapet"):
        text = subprocess.run(
            [readelf, "-d", folder / file], capture_output=True, text=True, check=True
        ).stdout
        assert "[$ORIGIN" in text
        needed = re.findall(r"NEEDED.*\[(.+)\]", text)
        system = r"(lib(c|m|dl|pthread|stdc\+\+|gcc_s|gomp|omp|tvm_ffi)|ld-linux.*)\.so[.\d]*"
        missing = [x for x in needed if not re.fullmatch(system, x) and not (folder / x).exists()]
        assert not missing
