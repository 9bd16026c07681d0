"""What back ends and people use to submit jobs and read their answers."""
