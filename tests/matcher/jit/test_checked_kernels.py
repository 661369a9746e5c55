"""Kernels with COVEY_DEBUG_BOUNDS=1, and hashes that no optimisation changes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from covey import matcher
from covey.matcher.jit.kernel import array, first_hash, int64, kernel, mix

KERNELS = """
import numpy as np
from covey.matcher.jit.kernel import array, inlined, int64, kernel
@inlined
def helper(values, at):
    return values[at]
@kernel(array(int64), int64)
def read(values, at):
    return helper(values, at)
@kernel(array(int64, 2), int64)
def write(values, at):
    values[at, 1] = 7
    return 0
for each in (read, write):
    each.load()
line, matrix = np.arange(4), np.zeros((4, 2), dtype=np.int64)
for at in (3, 4, -1, -5):
    for each, values in ((read, line), (write, matrix)):
        try:
            each(values, at)
        except IndexError:
            print(at)
print(sum(read.compiled.stats.cache_hits.values()))
"""


def run(checked: str, tmp_path: Path) -> list[str]:
    (tmp_path / "tried.py").write_text(KERNELS)
    environment = os.environ | {"COVEY_DEBUG_BOUNDS": checked, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", "import tried"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    return ran.stdout.split()


def test_the_switch_checks_every_index_and_has_its_own_cache(tmp_path: Path) -> None:
    wrong = [at for at in ("4", "-1", "-5") for _ in range(2)]
    assert run("1", tmp_path) == [*wrong, "0"]
    assert run("1", tmp_path) == [*wrong, "1"]
    stamp = "from covey.matcher.jit.cache import source_stamp; print(source_stamp('covey.matcher.errors'))"
    stamps = {
        subprocess.run(
            [sys.executable, "-c", stamp],
            capture_output=True, text=True, check=True, env=os.environ | {"COVEY_DEBUG_BOUNDS": switch},
        ).stdout
        for switch in ("0", "1")
    }  # fmt: skip
    assert len(stamps) == 2


@kernel(array(int64), int64, array(int64))
def hash_keys(keys, seed, hashes):
    for i in range(keys.size):
        hashes[i] = mix(mix(first_hash(seed), keys[i]), 5)
    return 0


def test_hashes_are_products_modulo_two_to_the_64() -> None:
    def signed(number: int) -> int:
        return (number + 2**63) % 2**64 - 2**63

    def mixed(h: int, key: int) -> int:
        h = signed((h ^ key) * -7046029254386353131)
        return h ^ (h >> 32)

    keys = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 200)
    hashes = np.zeros(len(keys), dtype=np.int64)
    with np.errstate(over="ignore"):
        hash_keys(keys, 3, hashes)
    assert hashes.tolist() == [
        mixed(mixed(signed(3 * -4417276706812531889), key), 5) for key in keys.tolist()
    ]


def test_no_kernel_multiplies_by_itself_for_a_hash() -> None:
    """Numba's product of signed integers must not overflow."""
    folder = Path(matcher.__file__).parent
    large = re.compile(r"(\* *np\.int64\(-?\d{10,}\)|np\.int64\(-?\d{10,}\) *\*)")
    wrong = [
        path.name
        for path in folder.rglob("*.py")
        if path.name != "kernel.py" and large.search(path.read_text())
    ]
    assert wrong == []
