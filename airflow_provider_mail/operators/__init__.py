"""Operators, one module per resource."""
