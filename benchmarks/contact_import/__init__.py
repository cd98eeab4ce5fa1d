"""The parts of import_contacts.py: where the contacts come from, who takes them, and what is measured."""
