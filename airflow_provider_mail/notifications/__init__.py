"""Notifiers: mail about tasks and runs."""
