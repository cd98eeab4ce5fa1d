"""The audience of an import: who gets its campaigns, and the state by which only changes are sent."""
