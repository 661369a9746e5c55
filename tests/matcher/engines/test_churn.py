"""The cluster engine under random churn, against an oracle of NumPy columns (`support/churn.py`)."""

import os
import subprocess
import sys

import churn
import pytest
from draws import DRAWS, SEED, each_seed


@each_seed("churn")
def test_no_difference_under_churn(seed: int) -> None:
    churn.run(seed, 20_000)


@pytest.mark.thorough
def test_no_difference_under_churn_of_a_hundred_thousand_with_bounds_checked() -> None:
    end = SEED + DRAWS["churn, large"].count
    command = [sys.executable, churn.__file__, *map(str, (SEED, end, 100_000))]
    environment = os.environ | {"COVEY_DEBUG_BOUNDS": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
