"""Benchmark of the drain: see ``benchmarks/drain_events.py``."""
