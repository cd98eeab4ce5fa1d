"""Stand-ins for the services of warehouses, which the real clients of Airflow's providers talk to."""
