"""The email service, without Airflow: one module per resource, two clients over one core.

Nothing is imported here, so that ``airflow_provider_mail.api.errors`` costs nothing in a DAG file.
"""
