"""The image of the kernels: other processes load it without Numba, with equal results. It is of two small
modules, in a cache of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from covey.matcher.jit.image import images_supported
from covey.matcher.jit.linking import LinkError, link

pytestmark = pytest.mark.skipif(not images_supported(), reason="images are for Linux on x86-64")

KERNELS = """
from typing import NamedTuple
from covey.matcher.jit.kernel import array, float64, frozen, inlined, int64, kernel, record, uint8
class Pair(NamedTuple):
    left: object
    right: object
@inlined
def total(values):
    sum = 0
    for value in values:
        sum += value
    return sum
@kernel(record([array(int64), array(uint8)], Pair), frozen(float64), int64, float64)
def weigh(pair, weights, shift, factor):
    if shift < 0:
        raise MemoryError("no room below 0")
    pair.left[0] += 1
    return (total(pair.left) + total(pair.right) << shift) * factor * weights[0]
"""
PROGRAM = """
import sys
import numpy as np
import small
from covey.matcher.jit import compiling
compiling.KERNEL_MODULES = ("covey.matcher.covering.region_kernels", "small")
compiling.compile_kernels()
loaded = sorted({"numba", "llvmlite"} & set(sys.modules))
weights = np.array([0.5])
weights.flags.writeable = False
pair = small.Pair(np.array([1, 2]), np.array([3], dtype=np.uint8))
print(loaded, small.weigh(pair, weights, 1, 3.0), pair.left.tolist())
for wrong in ((pair, weights, -1, 1.0), (pair, weights, None, 1.0), (pair, [0.5], 1, 1.0), (pair,)):
    try:
        small.weigh(*wrong)
    except Exception as error:
        print(type(error).__name__)
print(compiling.image_path(compiling.KERNEL_MODULES))
"""
CACHED = """
import small
from covey.matcher.jit import compiling
compiling.KERNEL_MODULES = ("covey.matcher.covering.region_kernels", "small")
print(compiling.kernels_cached())
"""
ERRORS = ["MemoryError", "TypeError", "TypeError", "TypeError"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first process compiles the kernels and links their image."""
    folder = tmp_path_factory.mktemp("image")
    (folder / "small.py").write_text(KERNELS)
    first, *errors, _ = run(folder)
    assert first == "['llvmlite', 'numba'] 21.0 [2, 2]"
    assert errors == ERRORS
    return folder


def run(folder: Path, before: str = "") -> list[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", before + PROGRAM]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_kernels_of_an_image_answer_and_fail_as_those_of_numba_without_it(folder: Path) -> None:
    first, *errors, path = run(folder)
    assert first == "[] 21.0 [2, 2]"
    assert errors == ERRORS
    assert Path(path).exists()


@pytest.mark.thorough
def test_a_damaged_image_is_linked_anew(folder: Path) -> None:
    path = Path(run(folder)[-1])
    sound = path.read_bytes()
    for damaged in (sound[: len(sound) // 2], sound[:5_000] + bytes(100) + sound[5_100:]):
        path.write_bytes(damaged)
        assert run(folder)[0].startswith("['llvmlite', 'numba'] ")
    assert run(folder)[0].startswith("[] ")


@pytest.mark.thorough
def test_an_image_is_of_one_processor(folder: Path) -> None:
    other = "import os; os.environ['NUMBA_CPU_NAME'] = 'x86-64'\n"
    path = run(folder, other)[-1]
    assert path != run(folder)[-1]


@pytest.mark.thorough
def test_where_code_cannot_be_linked_numba_loads_it_and_the_kernels_count_as_cached(folder: Path) -> None:
    failing = """
from covey.matcher.jit import linking
link = linking.link
def refuse(kernels):
    if kernels:
        raise linking.LinkError("another code model")
    return link(kernels)
linking.link = refuse
"""
    other = "import os; os.environ['NUMBA_CPU_FEATURES'] = '+sse2'\n"
    for _ in range(2):
        assert run(folder, other + failing)[0] == "['llvmlite', 'numba'] 21.0 [2, 2]"
    cached = subprocess.run(
        [sys.executable, "-c", other + CACHED],
        capture_output=True, text=True, check=True, cwd=folder,
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")},
    )  # fmt: skip
    assert cached.stdout == "True\n"


def test_what_is_no_object_file_is_not_linked() -> None:
    with pytest.raises(LinkError, match="no object file"):
        link({"kernel": (bytes(64), "symbol")})
