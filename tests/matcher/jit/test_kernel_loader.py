"""Loading in the background: one process compiles, the others wait, no caller blocks, a failure is logged
once. The child compiles only the smallest kernel module, since all take a minute."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

FEW = """
from covey.matcher.jit import compiling
from covey.matcher.jit import kernel_loader
compiling.KERNEL_MODULES = ("covey.matcher.covering.region_kernels",)
"""
LOADING = f"""
import logging, threading, time
logging.basicConfig(level="INFO", format="%(message)s")
{FEW}
from covey.matcher.jit import kernel
kernel_loader._CHILD = {FEW!r} + kernel_loader._CHILD
threads = set()
use = kernel.Kernel.use
kernel.Kernel.use = lambda self, entry: (threads.add(threading.current_thread().name), use(self, entry))
compiling.load_in_background(kernel_loader.loader.load)
assert not compiling.kernels_usable()  # a call that waited for them would find them
"""
WAITING = """
while kernel_loader.loader.state not in ("ready", "failed"):
    time.sleep(0.05)
print(kernel_loader.loader.state, compiling.kernels_usable(), threads)
"""


def python(code: str, cache: Path, *, start_new_session: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        start_new_session=start_new_session,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.thorough
def test_of_several_processes_one_compiles_and_all_load_even_where_they_cannot_write(tmp_path: Path) -> None:
    processes = [python(LOADING + WAITING, tmp_path) for _ in range(3)]
    outputs = [process.communicate() for process in processes]
    assert [output for output, _ in outputs] == ["ready True {'covey-kernels'}\n"] * 3
    assert sum("in the background, once" in log for _, log in outputs) == 1
    read_only = "from covey.matcher.jit import cache\ncache.cache_writable = lambda: False\n"
    output, log = python(read_only + LOADING + WAITING, tmp_path).communicate()
    assert (output, log) == ("ready True {'covey-kernels'}\n", "")


def test_a_process_that_waits_for_another_has_not_imported_numba(tmp_path: Path) -> None:
    directory = tmp_path / "kernels"
    directory.mkdir()
    with (directory / "compile.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = """
import sys, time
from covey.matcher.jit import kernel_loader
kernel_loader.loader.load()
while kernel_loader.loader.state != "compiling":
    time.sleep(0.02)
time.sleep(0.3)
print("numba" in sys.modules)
"""
        output, _ = python(waiting, tmp_path).communicate()
    assert output == "False\n"


@pytest.mark.thorough
def test_a_file_system_without_locks_is_no_failure(tmp_path: Path) -> None:
    without = """
import fcntl
def flock(file, operation):
    raise OSError(37, "No locks available")
fcntl.flock = flock
"""
    output, _ = python(without + LOADING + WAITING, tmp_path).communicate()
    assert output == "ready True {'covey-kernels'}\n"


@pytest.mark.thorough
def test_the_child_imports_from_the_path_of_its_parent(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "extra_module.py").write_text("")
    path = f"import sys\nsys.path.append({str(tmp_path / 'sources')!r})\n"
    child = "kernel_loader._CHILD = 'import extra_module\\n' + kernel_loader._CHILD\n"
    output, log = python(path + LOADING + child + WAITING, tmp_path / "cache").communicate()
    assert output == "ready True {'covey-kernels'}\n", log


def test_the_kernels_of_filters_over_the_cap_are_loaded_with_the_others() -> None:
    code = """
from covey.matcher.jit import compiling
compiling.kernels_cached()  # names all kernels
before = len(compiling.registered)
from covey.matcher.engines.cluster import engine
from covey.matcher.engines.trees import engine as trees
print(before == len(compiling.registered) > 0)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).stdout == b"True\n"


def test_a_failing_child_is_logged_once_and_leaves_the_process_without_kernels(tmp_path: Path) -> None:
    failing = "kernel_loader._CHILD = 'raise SystemExit(\"no compiler\")'\n"
    again = "kernel_loader.loader.load(); assert not compiling.kernels_usable()\n"
    output, log = python(LOADING + failing + WAITING + again, tmp_path).communicate()
    assert output == "failed False set()\n"
    assert log.count("no matching kernels, filters are evaluated without them: ") == 1
    assert "no compiler" in log


@pytest.mark.thorough
def test_a_killed_child_is_replaced(tmp_path: Path) -> None:
    once = f"""
import os, pathlib
if not pathlib.Path({str(tmp_path / "killed")!r}).exists():
    pathlib.Path({str(tmp_path / "killed")!r}).touch()
    os.kill(os.getpid(), 9)
"""
    killed = f"kernel_loader._CHILD = {once!r} + kernel_loader._CHILD\n"
    output, log = python(LOADING + killed + WAITING, tmp_path).communicate()
    assert (tmp_path / "killed").exists()
    assert output == "ready True {'covey-kernels'}\n", log


@pytest.mark.thorough
def test_without_a_writable_cache_the_process_compiles_in_its_thread(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    output, log = python(LOADING + WAITING, tmp_path / "file").communicate()
    assert output == "ready True {'covey-kernels'}\n"
    assert "is not writable" in log


SLOW_CHILD = """
import os, time
with open({file!r}, "w") as file:
    file.write(str(os.getpid()))
kernel_loader.compile_kernels = lambda: time.sleep(300)
kernel_loader.compile_for_parent()
"""
UNTIL_STARTED = """
from pathlib import Path
while not (Path({file!r}).exists() and Path({file!r}).read_text()):
    time.sleep(0.05)
"""


def test_a_process_that_ends_takes_its_compiling_child_with_it(tmp_path: Path) -> None:
    file = str(tmp_path / "pid")
    child = f"kernel_loader._CHILD = {FEW + SLOW_CHILD.format(file=file)!r}\n"
    process = python(LOADING + child + UNTIL_STARTED.format(file=file), tmp_path)
    process.communicate(timeout=300)
    assert process.returncode == 0
    assert not Path(f"/proc/{Path(file).read_text()}").exists()


def test_an_interrupt_from_the_terminal_does_not_end_the_child(tmp_path: Path) -> None:
    file = str(tmp_path / "pid")
    child = f"kernel_loader._CHILD = {FEW + SLOW_CHILD.format(file=file)!r}\n"
    interrupt = """
import os, signal
signal.signal(signal.SIGINT, lambda *_: None)
os.killpg(0, signal.SIGINT)
time.sleep(0.5)
print(kernel_loader.loader.state, os.path.exists("/proc/" + Path({file!r}).read_text()))
"""
    code = LOADING + child + UNTIL_STARTED.format(file=file) + interrupt.format(file=file)
    process = python(code, tmp_path, start_new_session=True)
    assert process.communicate(timeout=300)[0] == "compiling True\n"


def test_what_the_first_events_need_is_imported_before_they_come(tmp_path: Path) -> None:
    """pyarrow imports pandas at its first list, for half a second of an event loop."""
    then = """
print(sorted({"pandas", "covey.matcher.engines.cluster.engine"}.difference(sys.modules)))
"""
    output, log = python("import sys\n" + LOADING + WAITING + then, tmp_path).communicate()
    assert output.splitlines()[1] == "[]", log
