"""Shared evaluation of named operators: which to call, for which events, in which order (Liu et al.)."""
