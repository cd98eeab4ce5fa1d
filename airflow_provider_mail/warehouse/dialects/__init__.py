"""How each database loads rows."""
