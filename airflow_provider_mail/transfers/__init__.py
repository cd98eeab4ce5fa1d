"""Transfers between the service and databases."""
