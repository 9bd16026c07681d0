"""The engine's work on the device: plans in, head values out.

    runner.py            runs plans through the model
    prefill.py           several positions of some sequences at once
    varlen.py            prefills laid out one after another, on the host
    batch.py             prefills laid out on the device
    captured_prefill.py  the usual prefills, each as one graph
    prefill_shapes.py    the shapes of captured prefills
    prefill_buffers.py   the inputs of a captured prefill, at fixed addresses
    decoder.py           one position of each running sequence
    decode_rows.py       decodes laid out on the host
    decode_buffers.py    the inputs of a decode step, at fixed addresses
    mask_table.py        the masks of a step's rows, and those kept from earlier steps
    heads.py             reads each sequence's heads, and copies the values to the host
    sampler.py           logits to token ids
    penalties.py         counts of the tokens that sequences with penalties have sampled
    text_runner.py       packs texts and runs an encoder over them
    captured_texts.py    small batches of texts, each size as one graph
    kv_cache.py          the memory of keys and values
    attention_choice.py  chooses the backend of attention
    planned_attention.py has FlashInfer plan the attention of batches before they run
    static_buffers.py    arrays at fixed addresses
    upload.py            host values to the device, a whole batch in one copy
    packed_bytes.py      arrays packed for one copy

This file imports nothing.
"""

__all__: list[str] = []
