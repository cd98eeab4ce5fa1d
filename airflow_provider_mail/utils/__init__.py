"""What Airflow's own settings point to."""
