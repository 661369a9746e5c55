"""Options of the core's tests."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the golden scripts give as what they are expected to give",
    )
