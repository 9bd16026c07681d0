"""Operations with kernels of their own, one folder each.

In every folder `__init__.py` picks the kernel or the reference, `reference.py` defines the operation in plain torch,
and `kernel.py` (or the files named there) computes it with Triton. Files in CUDA C++ are `*.cu`.

    backend.py        decides whether a kernel or the reference runs
    early.py          starts a kernel before the previous one has ended
    branch.py         runs kernels beside others
    linear.py         linear layers with weights as they came
    profiling.py      names for parts of a step in the profiler's traces
    hopper/           compiles and launches CUDA C++ on Hopper
    block_fp8/        weights in float8 with a scale for each block
    fp8/              linear layers in fp8, and rows quantised for them
    layer_norm/       layer norm, with the sums before it or the rounding to fp8 after it
    rms_norm/         RMS norm, with the sums before it
    rope/             rotary position embedding (reference only)
    rotate_heads/     rotation of an encoder's queries and keys, in place
    rotate_write/     rotation of queries and keys, and the write to the KV pool
    copy_pages/       copies of whole pages of the KV pool
    tau/              learned scales of queries and values
    rotate_attend/    `rotate_write` and attention in one launch, for single rows
    paged_attention/  attention over the paged KV pool
    vision_attention/ full attention within each crop
    row_linear/       products of one row, with the norm, gating or sum beside them
    layer_stack/      all layers of a decoder for one row, in one launch
    skinny_linear/    products of few rows with large weights
    moe/              a mixture of experts
    low_rank/         corrections by another adapter for each row
    swiglu/           the gated activation of an MLP
    embedding/        the embeddings of a decode's tokens
    sampling/         the choice of tokens
    packed_attention/ full attention within each of several packed texts
    patchify/         pixels to normalised patches
    jpeg/             JPEGs to pixels, by a GPU's own decoder
    resize/           Pillow's LANCZOS and BICUBIC
    stitch_pool/      the features of local crops averaged into one grid
"""
