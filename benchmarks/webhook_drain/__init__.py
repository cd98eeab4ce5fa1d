"""Draining the inbox into Postgres: the measured variants, and one measurement."""
