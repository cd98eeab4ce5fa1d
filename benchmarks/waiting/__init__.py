"""The parts of waits.py: the service, the triggers, and the deferred tasks."""
