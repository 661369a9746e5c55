"""Independent checkers: they judge a run from what clients say and see, not from what brokers think."""

from covey.sim.checkers.findings import Finding, Findings
from covey.sim.checkers.judge import Judge
from covey.sim.checkers.routes import check_quiet, check_routes
from covey.sim.checkers.traffic import Traffic

__all__ = ["Finding", "Findings", "Judge", "Traffic", "check_quiet", "check_routes"]
