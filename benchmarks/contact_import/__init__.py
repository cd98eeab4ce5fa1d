"""Imports of contacts: the databases, the sink, the measured variants, and one measurement."""
