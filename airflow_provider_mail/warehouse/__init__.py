"""The database side of the house: tables declared once, loads that can be repeated, reading in constant memory.

Imported behind the operators when a task runs, never when a DAG file is parsed.
"""
