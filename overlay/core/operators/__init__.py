"""Named operators in a broker: limits of their time, and notices of their faults to subscribers."""
