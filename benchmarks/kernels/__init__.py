"""Every kernel against the library call that it replaces: `python -m benchmarks.kernels`.

    row.py      one line of the table, and its timing
    ceiling.py  the highest rates of a device

Every other module times the kernels of the same name; `gemm` times the products in fp8, `grouped_attention` paged
attention with fewer key heads, `moondream_layer` and `moondream2_layer` a layer of Moondream 3's and Moondream 2's
decode, `flashinfer` paged attention against FlashInfer, and `wide_sampling` large vocabularies.
"""

__all__: list[str] = []
