"""Flows: operations that need several requests, written once for both clients. No I/O."""
