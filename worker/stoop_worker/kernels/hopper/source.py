"""Writes a kernel's whole source: constants, Hopper's instructions, its products, a running softmax, and the kernel."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import torch

from stoop_worker.kernels.hopper.compiler import has_compiler

__all__ = ["HALVES", "Shape", "defined", "is_hopper", "multiprocessors", "products_of", "source"]

HALVES = {torch.bfloat16: "bf16", torch.float16: "f16"}
"""The dtypes that these kernels take, with the names that the products use."""

_CAPABILITY = (9, 0)


@dataclass(frozen=True, slots=True)
class Shape:
    """The tile sizes of attention: keys per block, warpgroups of 64 query rows, programs per multiprocessor, stages."""

    keys: int = 64
    warpgroups: int = 2
    programs: int = 2
    stages: int = 4

    @property
    def rows(self) -> int:
        """Query rows of a program."""
        return 64 * self.warpgroups

    @property
    def threads(self) -> int:
        """Threads of a program."""
        return 128 * self.warpgroups


@cache
def is_hopper(device: torch.device) -> bool:
    """Return whether these kernels run on the device; they need their compiler."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == _CAPABILITY and has_compiler()


@cache
def multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors the device has."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def products_of(columns: int, dtype: torch.dtype, *, in_registers: bool = True) -> str:
    """Return the source of the product of 64 x 16 values with `columns` rows of 16 in shared memory.

    The values are in registers, or else in shared memory too.
    """
    return (_scores_of_registers if in_registers else _scores)(columns, HALVES[dtype])


def defined(path: str, numbers: Mapping[str, int], dtype: torch.dtype, *, products: str = "") -> str:
    """Return the source of one file below `kernels`, with its constants, Hopper's instructions and its products."""
    folder = files("stoop_worker.kernels")
    return "\n".join(
        [
            f'#define HALF "{HALVES[dtype]}"',
            *(f"#define {name} {int(value)}" for name, value in numbers.items()),
            folder.joinpath("hopper/hopper.cu").read_text(),
            products,
            folder.joinpath(path).read_text(),
        ]
    )


def source(
    package: str,
    shape: Shape,
    numbers: Mapping[str, int],
    *,
    dtype: torch.dtype,
    scored: Iterable[int],
    mixed: Iterable[int],
) -> str:
    """Return the source of a package's `attend.cu` for 16-bit values.

    It defines the constants and the products; these have `scored` and `mixed` columns.
    """
    half = HALVES[dtype]
    defined = {
        "KEYS": shape.keys,
        "WARPGROUPS": shape.warpgroups,
        "PROGRAMS": shape.programs,
        "STAGES": shape.stages,
        "HALF": f'"{half}"',
        **numbers,
    }
    folder = files("stoop_worker.kernels.hopper")
    return "\n".join(
        [
            *(f"#define {name} {value}" for name, value in defined.items()),
            folder.joinpath("hopper.cu").read_text(),
            *(_scores(columns, half) for columns in sorted(set(scored))),
            *(_scores_of_registers(columns, half) for columns in sorted(set(scored))),
            *(_mix(columns, half) for columns in sorted(set(mixed))),
            folder.joinpath("softmax.cu").read_text(),
            files(package).joinpath("attend.cu").read_text(),
        ]
    )


def _scores(columns: int, half: str) -> str:
    """Return the product of 64 x 16 queries and `columns` keys, in shared memory by channel; `add` keeps the sums."""
    count, sums, names = _sums(columns)
    wgmma = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{half}.{half} {sums}, %{count}, %{count + 1}, adds"
    return f"""
template <> __device__ __forceinline__ void scores<{columns}>(float* sums, u64 a, u64 b, int add) {{
  asm volatile("{{ .reg .pred adds; setp.ne.b32 adds, %{count + 2}, 0; {wgmma}, 1, 1, 0, 0; }}"
               : {names} : "l"(a), "l"(b), "r"(add));
}}"""


def _scores_of_registers(columns: int, half: str) -> str:
    """Return the same product with the queries in registers."""
    count, sums, names = _sums(columns)
    queries = ", ".join(f"%{count + i}" for i in range(4))
    wgmma = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{half}.{half} {sums}, {{{queries}}}, %{count + 4}, adds"
    return f"""
template <> __device__ __forceinline__ void scores<{columns}>(float* sums, const u32* a, u64 b, int add) {{
  asm volatile("{{ .reg .pred adds; setp.ne.b32 adds, %{count + 5}, 0; {wgmma}, 1, 1, 0; }}"
               : {names} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}}"""


def _mix(columns: int, half: str) -> str:
    """Return the product of 64 x 16 weights in registers and 16 values of `columns` channels, stored value by value."""
    count, sums, names = _sums(columns)
    weights = ", ".join(f"%{count + i}" for i in range(4))
    wgmma = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{half}.{half} {sums}, {{{weights}}}, %{count + 4}"
    return f"""
template <> __device__ __forceinline__ void mix<{columns}>(float* sums, const u32* a, u64 b) {{
  asm volatile("{wgmma}, 1, 1, 1, 1;"
               : {names} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}}"""


def _sums(columns: int) -> tuple[int, str, str]:
    """Return how many sums of a product a thread holds, their operand numbers, and their C++ operands."""
    count = columns // 2
    numbers = ", ".join(f"%{i}" for i in range(count))
    return count, f"{{{numbers}}}", ", ".join(f'"+f"(sums[{i}])' for i in range(count))
