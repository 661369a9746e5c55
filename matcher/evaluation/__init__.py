"""Shared evaluation of named operators: which are asked, about which events, in which order (Liu et al.)."""
