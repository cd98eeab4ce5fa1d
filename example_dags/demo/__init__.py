"""``make demo`` and ``make demo-ui``: the example DAGs in a real Airflow, with the email service emulated."""
