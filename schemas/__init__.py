"""The wire contract: what producers and workers say to each other, as frozen values. No I/O."""
