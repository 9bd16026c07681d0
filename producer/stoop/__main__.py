"""`stoop`, and `python -m stoop`."""

import gc
import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line. While it is still being loaded, Ctrl-C ends it without a traceback."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # what is imported stays, and the collector would walk all of it again and again
    gc.disable()
    from stoop.cli.app import main as run

    gc.enable()
    if raises:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
