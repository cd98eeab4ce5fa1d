"""The parts of export_contacts.py: the service and the measured variants."""
