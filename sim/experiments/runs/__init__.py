"""Runs of scenarios, simulated or over real brokers: the same schedule, judge, trace and summary."""
