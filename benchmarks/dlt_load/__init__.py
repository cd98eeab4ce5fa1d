"""The parts of dlt_loads.py: the measured variants."""
