"""Independent checkers: they judge a run by its clients, not by the state of the brokers."""

from covey.sim.checkers.damage import Damage
from covey.sim.checkers.findings import Finding, Findings
from covey.sim.checkers.judge import Judge
from covey.sim.checkers.routes import check_logs, check_quiet, check_rebuilt, check_routes
from covey.sim.checkers.traffic import Traffic
from covey.sim.checkers.views import Views

__all__ = [
    "Damage",
    "Finding",
    "Findings",
    "Judge",
    "Traffic",
    "Views",
    "check_logs",
    "check_quiet",
    "check_rebuilt",
    "check_routes",
]
