"""The tables of the warehouse, one module each."""
