"""Exports of contacts to Postgres: the service, the measured variants, and one measurement."""
