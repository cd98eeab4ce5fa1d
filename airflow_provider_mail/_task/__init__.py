"""What a task needs around its hook. Private."""
