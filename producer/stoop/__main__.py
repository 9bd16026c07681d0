"""`stoop`, and `python -m stoop`."""

import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line. While it is still being loaded, Ctrl-C ends it without a traceback."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from stoop.cli.app import main as run

    if raises:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
