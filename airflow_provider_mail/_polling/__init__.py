"""What runs in the triggerer: one shared poll per interval for all waits on a connection. Private."""
