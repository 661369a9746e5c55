"""Kernels are compiled once, found in the cache by the next process, and right without compilation."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from covey.matcher import compile_kernels, kernels_cached
from covey.matcher.encoding.encode_kernels import encode_integers
from covey.matcher.jit.kernel import registered


def test_compiled_kernels_are_cached_and_take_no_other_types() -> None:
    steps: list[tuple[int, int]] = []
    compile_kernels(lambda done, total: steps.append((done, total)))
    assert steps[-1] == (len(registered), len(registered))
    assert kernels_cached()
    assert all(len(kernel.compiled.signatures) == 1 for kernel in registered)


def test_arguments_of_other_types_are_refused_where_types_are_checked() -> None:
    compile_kernels()
    keys = np.zeros((4, 1), dtype=np.int64)
    values, valid = np.arange(4), np.zeros(0, dtype=np.uint8)
    encode_integers(values, valid, 0, 0, keys)
    assert keys[:, 0].tolist() == [0, 1, 2, 3]
    for wrong in (values.astype(np.float64), np.arange(8)[::2]):
        with pytest.raises(TypeError):
            encode_integers(wrong, valid, 0, 0, keys)


def test_the_next_process_loads_what_this_one_compiled() -> None:
    compile_kernels()
    asks = "from covey.matcher import kernels_cached; print(kernels_cached())"
    answer = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert answer.stdout == "True\n"


def test_a_kernel_is_compiled_anew_when_a_helper_in_another_module_changes(tmp_path: Path) -> None:
    package = tmp_path / "valley"
    package.mkdir()
    (package / "limits.py").write_text("STEP = 1\n")
    (package / "helpers.py").write_text(
        "from covey.matcher.jit.kernel import inlined\nfrom valley.limits import STEP\n"
        "@inlined\ndef next_of(value):\n    return value + STEP\n"
    )
    (package / "kernels.py").write_text(
        "from covey.matcher.jit.kernel import int64, kernel\n"
        "from valley.helpers import next_of\n"
        "@kernel(int64)\ndef following(value):\n    return next_of(value)\n"
    )
    asks = (
        "from valley.kernels import following\n"
        "following.load()\n"
        "print(following(1), sum(following.compiled.stats.cache_hits.values()))"
    )

    def answer() -> str:
        command = [sys.executable, "-c", asks]
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        return subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
        ).stdout

    assert answer() == "2 0\n"
    assert answer() == "2 1\n"
    (package / "limits.py").write_text("STEP = 2\n")
    assert answer() == "3 0\n"


@pytest.mark.thorough
@pytest.mark.random
def test_kernels_hold_uncompiled_too() -> None:
    here = Path(__file__).parents[1]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "COVEY_ONE_IN": "2"}
    tests = ("engines/test_kernels.py", "engines/test_stores.py", "covering/test_region_index.py")
    files = [str(here / name) for name in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=here, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
