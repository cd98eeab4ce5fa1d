"""Commands: ``airflow mail ...`` on Airflow 3.2 and later, ``python -m airflow_provider_mail ...`` on all."""
