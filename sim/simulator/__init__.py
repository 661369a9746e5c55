"""The simulator: the overlay's own broker, client and link logic in virtual time."""

from covey.sim.simulator.costs import Calibrated, Costs, Free, Measured
from covey.sim.simulator.observer import Observer
from covey.sim.simulator.simulation import Simulation
from covey.sim.simulator.wire import WireOptions

__all__ = ["Calibrated", "Costs", "Free", "Measured", "Observer", "Simulation", "WireOptions"]
