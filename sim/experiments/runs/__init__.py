"""Runs of one scenario, simulated or over real brokers: the same schedule, judge, trace and summary."""
