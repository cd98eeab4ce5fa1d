"""Operators, one module a resource."""
