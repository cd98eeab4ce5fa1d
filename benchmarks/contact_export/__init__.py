"""The parts of export_contacts.py: the service that has the contacts, and what is measured."""
