"""The GPU kernels in the wheel, read as machine code. No GPU is needed.

PARAPET_WHEEL names the wheel; `./dev test python` builds it.
"""

import os
import re
import shutil
import subprocess
import sysconfig
import zipfile
from collections import Counter
from pathlib import Path

import pytest

WHEEL = os.environ.get("PARAPET_WHEEL", "")
ARCHS = ("sm_80", "sm_89", "sm_90a", "sm_120")
ELF = b"\x7fELF"

if not os.path.isfile(WHEEL):
    pytest.skip("PARAPET_WHEEL does not name a wheel", allow_module_level=True)


def read_kernels():
    """The machine code in the wheel, by kernel and architecture."""
    with zipfile.ZipFile(WHEEL) as wheel:
        return {
            match.groups(): wheel.read(file)
            for file in wheel.namelist()
            if (match := re.search(r"parapet-kernels/(.+)-(sm_\w+)-\w+\.kernel$", file))
        }


KERNELS = read_kernels()

if not KERNELS:
    pytest.skip("the wheel was built without NVRTC", allow_module_level=True)


def nvdisasm():
    path = Path(sysconfig.get_path("purelib"), "nvidia", "cu13", "bin", "nvdisasm")
    found = str(path) if path.exists() else shutil.which("nvdisasm")
    if found is None:
        pytest.skip("there is no nvdisasm (pip install nvidia-cuda-nvdisasm)")
    return found


def disassemble(kernel, arch, tmp_path):
    """The instructions of the attention kernel, and where its labels are among them."""
    cubin = tmp_path / "kernel.cubin"
    entry = KERNELS[kernel, arch]
    cubin.write_bytes(entry[entry.index(ELF) :])
    text = subprocess.run(
        [nvdisasm(), "-c", cubin], capture_output=True, text=True, check=True
    ).stdout
    instructions, labels = [], {}
    for line in text.split(".text.parapet_forward:")[1].splitlines():
        if match := re.match(r"(\.L_\w+):", line):
            labels[match[1]] = len(instructions)
        elif match := re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@\S+\s+)?([^;]+);", line):
            instructions.append(match[1].strip())
        elif instructions and ".section" in line:
            break
    return instructions, labels


def main_loop(instructions, labels):
    """The loop over the keys: of the innermost loops the one with the most matrix products."""

    def products(loop):
        return sum(instructions[i].startswith("HMMA") for i in loop)

    loops = []
    for end, instruction in enumerate(instructions):
        match = re.match(r"BRA.*`\((\.L_\w+)\)", instruction)
        if match and labels[match[1]] <= end:
            loops.append(range(labels[match[1]], end + 1))
    loops = [loop for loop in loops if products(loop)]
    innermost = [
        loop
        for loop in loops
        if not any(other != loop and set(other) <= set(loop) for other in loops)
    ]
    return max(innermost, key=products)


def registers(operand, count):
    """The numbers of the registers that an operand begins."""
    match = re.match(r"R(\d+)", operand)
    return {int(match[1]) + i for i in range(count)} if match else set()


def products_of_single_loads(instructions):
    """Matrix products with an operand that came from shared memory other than by ldmatrix."""
    single = set()  # registers whose last writer was such a load
    found = []
    for instruction in instructions:
        name, _, rest = instruction.partition(" ")
        operands = [operand.strip() for operand in rest.split(",")]
        if name.startswith("HMMA"):
            used = registers(operands[1], 4) | registers(operands[2], 2)  # 16x16 and 16x8
            if used & single:
                found.append(instruction)
        width = 4 if ".128" in name or name.startswith("LDSM") else 2 if ".64" in name else 1
        written = registers(operands[0], width)
        single = single | written if re.match(r"LDS\b", name) else single - written
    return found


@pytest.mark.parametrize("arch", ARCHS)
def test_there_are_kernels_for_each_gpu(arch):
    kernels = {kernel.replace("-roomy", "") for kernel, its_arch in KERNELS if its_arch == arch}
    for element in ("bf16", "fp16"):
        for d in (64, 96, 128, 192, 256):
            assert {f"forward-{element}-d{d}", f"forward-{element}-d{d}-right"} <= kernels


def test_the_wheel_is_not_large():
    assert os.path.getsize(WHEEL) < 60_000_000


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
@pytest.mark.parametrize("kernel", ["d64", "d128", "d128-right", "d256-right"])
def test_what_the_loop_is_made_of(kernel, arch, tmp_path):
    instructions, labels = disassemble(f"forward-bf16-{kernel}", arch, tmp_path)
    loop = [instructions[i] for i in main_loop(instructions, labels)]
    names = Counter(instruction.split()[0].split(".")[0] for instruction in loop)
    # Operands come to the matrix units by ldmatrix, and to shared memory by asynchronous copies of
    # 16 bytes.
    assert names["LDSM"] > 0
    copies = [instruction for instruction in loop if instruction.startswith("LDGSTS")]
    assert copies
    assert all(".128" in copy for copy in copies)
    assert not products_of_single_loads(loop + loop)  # what a round leaves to the next one too
    assert names["LDG"] == names["LDL"] == names["STL"] == names["STG"] == 0
    assert names["BAR"] == 0
    # Global addresses are 64 bits wide.
    assert all(re.search(r"\[R\d+\.64(\+0x\w+)?\]", copy) for copy in copies)


def test_that_single_loads_would_be_found(tmp_path):
    instructions, _ = disassemble("forward-bf16-d128", "sm_120", tmp_path)
    assert not products_of_single_loads(instructions)
    changed = [re.sub(r"^LDSM\S*", "LDS.128", instruction) for instruction in instructions]
    assert products_of_single_loads(changed)
