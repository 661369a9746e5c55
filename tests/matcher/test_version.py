from importlib.metadata import version

import covey.matcher


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert covey.matcher.__version__ == version("covey")
