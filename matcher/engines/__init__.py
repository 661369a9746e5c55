"""Matching engines: one module per algorithm, all behind `covey.matcher.engine.Engine`."""
