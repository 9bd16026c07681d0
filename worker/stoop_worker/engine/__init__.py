"""The engine turns requests into outputs in one thread, without the wire and without asyncio.

    request.py       requests and outputs: the engine's border to the rest of the worker
    task.py          the tasks of requests
    media.py         the media of a request
    window.py        the transcript of a window of speech
    engine.py        the engine: one step at a time
    batch_engine.py  the engine of models that read whole texts and write none
    encoder.py       the port that a family of encoders implements
    text_cache.py    values of texts, kept for reuse
    thread.py        an engine in its own thread
    config.py        its limits and budgets
    checks.py        checks of every request, for any model
    scheduler.py     chooses the sequences of each step and their pages
    sequence.py      the mutable record of one request
    pages.py         the page pool, which counts the holders of each page
    prefix_cache.py  finished prefixes, kept for reuse
    detokenizer.py   ids to text, piece by piece
    stops.py         strings that end a text
    grammars/        grammars that a text must follow
    stats.py         counts for metrics
    model.py         the port that a family of models implements
    spec.py          a model's sizes and capabilities
    inputs.py        the inputs of a sequence
    positions.py     the positions of those inputs
    tensors.py       the tensors that pass between the engine and a model
    graphs.py        work captured as CUDA graphs
    skill.py         the port that turns head values into the next inputs
    device/          runs the plans of the scheduler on the device

This file imports nothing, so that importing `request.py` does not import torch.
"""

__all__: list[str] = []
