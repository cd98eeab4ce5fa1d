"""What runs in the triggerer: one poll per interval for all waits of a connection. Private."""
