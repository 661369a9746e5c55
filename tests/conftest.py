"""Settings of all tests: slow machines fail none, kernels check argument types, messages are immutable, and
random tests draw from a seed that every run prints (`draws`)."""

import os
from collections.abc import Iterator
from typing import get_args

import pytest
from draws import ALL, ONE_IN, SEED, TIMES, examples, report
from hypothesis import HealthCheck, is_hypothesis_test, settings

from covey.matcher import compile_kernels
from covey.matcher.jit.kernel import check_types
from covey.overlay.core.messages import Action, Message

pytest_plugins = ["local_brokers"]

settings.register_profile(
    "covey", examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("covey")
check_types()


def set_once(message: object, name: str, value: object) -> None:
    """`__setattr__` of messages, which are no frozen dataclasses, because those cost more
    (`messages.message`)."""
    if hasattr(message, name):
        raise AttributeError(f"{name} of {message!r} becomes {value!r}: expected a message not to change")
    object.__setattr__(message, name, value)


for kind in (*get_args(Message), *get_args(Action)):
    kind.__setattr__ = set_once


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    """Each worker loads the kernels once, so that no test depends on a background thread's timing."""
    compile_kernels()


@pytest.fixture(scope="session")
def spark() -> Iterator[None]:
    """One Spark session, which `spark_session()` returns."""
    from covey.sim.metrics import spark_session

    session = spark_session()
    yield
    session.stop()


def pytest_xdist_auto_num_workers() -> int:
    """Two per core, since tests of brokers wait for a part of their time."""
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(SEED)


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark Hypothesis tests as random, keep tests that share a fixture on one worker, and leave the thorough
    ones to `make test-all`."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("random")
        shared = [
            fixture.baseid
            for fixtures in item._fixtureinfo.name2fixturedefs.values()
            for fixture in fixtures
            if fixture.baseid and fixture.scope == "module"
        ]
        if "spark" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif shared and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(min(shared)))
    items[:] = items[SEED % ONE_IN :: ONE_IN]
    thorough = [] if ALL else [item for item in items if item.get_closest_marker("thorough")]
    if thorough:
        config.hook.pytest_deselected(items=thorough)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    yield
    grouped = [item for item in items if item.get_closest_marker("xdist_group")]
    if getattr(config.option, "loadgroup", False) and not all("@" in item.nodeid for item in grouped):
        raise pytest.UsageError("these versions of pytest and pytest-xdist keep no group on one worker")


def pytest_sessionstart(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(session.config, "workerinput"):
        for line in report():
            reporter.write_line(line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.stats.get("failed"):
        tests = (" COVEY_TESTS=all" if ALL else "") + (f" COVEY_TIMES={TIMES}" if TIMES > 1 else "")
        terminalreporter.write_line(f"The same draws again: COVEY_SEED={SEED}{tests} pytest TEST")
