"""What the tests need of the outside world: a real Airflow, a real Postgres."""
