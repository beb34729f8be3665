"""Airflow for the tests of this folder."""

from drivers.airflow_home import airflow_home, airflow_logging, dag_bag

__all__ = ["airflow_home", "airflow_logging", "dag_bag"]
