"""`python -m producer` is `stoop`."""

from producer.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
