"""A real Airflow in a folder."""
