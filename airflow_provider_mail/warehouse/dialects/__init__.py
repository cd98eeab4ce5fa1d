"""How each database is loaded and read: one module, of which only that of the database at hand is imported."""
