"""The delivery history without Spark: new records to changes."""
