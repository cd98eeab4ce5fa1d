"""The parts of import_contacts.py: the databases, the sink and the measured variants."""
