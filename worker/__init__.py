"""The GPU worker: claims jobs, runs them in one resident engine, publishes events and results."""
