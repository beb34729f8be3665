"""What a person sees of a reconcile run: a summary for the terminal, one HTML file for everybody else."""
