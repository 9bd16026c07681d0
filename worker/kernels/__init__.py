"""One folder an operation: `reference.py` is its definition in plain torch."""
