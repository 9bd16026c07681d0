// The products of one row with a large weight. A warp takes two rows of the weight at a time: it copies them to its own
// ring of slots in shared memory, and multiplies what has arrived. Copies begin before the row is ready, and a program
// leaves room for one of the next kernel beside it, so that memory is read from one kernel to the next without a pause.
//
// The host defines COLUMNS (the row's length), VALUE_BYTES (2, or 1 for float8 e4m3), WARPS, SLOTS, VECTORS (of 512 bytes,
// in a slot's half), BFLOAT (16-bit values are bfloat16, else float16), NORM, GATED, ADD, and SIDE (of a block with a scale, or 0).

constexpr int kThreads = 32 * WARPS, kVector = 512;
constexpr int kRowBytes = COLUMNS * VALUE_BYTES, kRowVectors = kRowBytes / kVector;
constexpr int kPieces = (kRowVectors + VECTORS - 1) / VECTORS, kHalf = VECTORS * kVector;
constexpr int kGroups = COLUMNS / 8, kGroupsEach = (kGroups + kThreads - 1) / kThreads;
constexpr int kEach = 16 / VALUE_BYTES;                    // values that a lane takes of a vector
constexpr int kParts = NORM ? kEach / 4 : kEach / 8;       // 16-byte parts of the row beside them
constexpr int kRowScales = SIDE ? COLUMNS / (SIDE ? SIDE : 1) : 0;

struct alignas(16) Quad {
  u32 x, y, z, w;
};

static __device__ __forceinline__ float as_float(u32 bits) { return __uint_as_float(bits); }

// two 16-bit values
static __device__ __forceinline__ void widen(u32 pair, float* to) {
#if BFLOAT
  to[0] = as_float(pair << 16);
  to[1] = as_float(pair & 0xffff0000u);
#else
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
      : "=f"(to[0]), "=f"(to[1])
      : "r"(pair));
#endif
}

// four float8 values
static __device__ __forceinline__ void widen_float8(u32 four, float* to) {
  asm("{ .reg .b16 low, high, a, b, c, d; .reg .b32 first, second; mov.b32 {low, high}, %4; "
      "cvt.rn.f16x2.e4m3x2 first, low; cvt.rn.f16x2.e4m3x2 second, high; "
      "mov.b32 {a, b}, first; mov.b32 {c, d}, second; "
      "cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; cvt.f32.f16 %2, c; cvt.f32.f16 %3, d; }"
      : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
      : "r"(four));
}

static __device__ __forceinline__ unsigned short narrow(float value) {
  unsigned short half;
#if BFLOAT
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
#endif
  return half;
}

static __device__ __forceinline__ void copy(u32 to, const char* from, int bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

static __device__ __forceinline__ void widen_row(Quad part, float* to) {
#if NORM
  to[0] = as_float(part.x), to[1] = as_float(part.y), to[2] = as_float(part.z), to[3] = as_float(part.w);
#else
  widen(part.x, to), widen(part.y, to + 2), widen(part.z, to + 4), widen(part.w, to + 6);
#endif
}

// the products of a lane's values of a vector and those of the row
static __device__ __forceinline__ float times(Quad weight, const float* row) {
  float values[kEach];
#if VALUE_BYTES == 1
  widen_float8(weight.x, values), widen_float8(weight.y, values + 4);
  widen_float8(weight.z, values + 8), widen_float8(weight.w, values + 12);
#else
  widen(weight.x, values), widen(weight.y, values + 2), widen(weight.z, values + 4), widen(weight.w, values + 6);
#endif
  float even = 0, odd = 0;
#pragma unroll
  for (int i = 0; i < kEach; i += 2) {
    even += values[i] * row[i];
    odd += values[i + 1] * row[i + 1];
  }
  return even + odd;
}

static __device__ __forceinline__ float over_warp(float value) {
#pragma unroll
  for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    row_product(const Quad* x, const Quad* norm, const char* weight, const float* scales, const unsigned short* added,
                unsigned short* y, u64 stride, float epsilon, int out) {
  extern __shared__ __align__(1024) char memory[];
  Quad* row = reinterpret_cast<Quad*>(memory + WARPS * SLOTS * 2 * kHalf);
  float* block_scales = reinterpret_cast<float*>(row + kRowVectors * kParts * 32);
  __shared__ u64 barriers[WARPS * SLOTS];
  __shared__ float squares_of[WARPS];

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int pairs = GATED ? out : out / 2;
  const int first = static_cast<long long>(pairs) * blockIdx.x / gridDim.x;
  const int last = static_cast<long long>(pairs) * (blockIdx.x + 1) / gridDim.x;
  const int mine = first + warp < last ? (last - first - warp + WARPS - 1) / WARPS : 0;
  const int pieces = mine * kPieces;
  const u32 ring = shared_address(memory) + warp * SLOTS * 2 * kHalf, barrier = shared_address(barriers + warp * SLOTS);
  const u64 apart = GATED ? stride * out : stride;  // from a row to the other of its pair

  // the next piece to copy, by lane 0
  const char* source = weight + (GATED ? stride : 2 * stride) * (first + warp);
  int begun = 0, begun_piece = 0;
  auto begin = [&](int slot) {
    const int bytes = min(kHalf, kRowBytes - begun_piece * kHalf);
    const u32 to = ring + slot * 2 * kHalf;
    const char* from = source + begun_piece * kHalf;
    expect(barrier + 8 * slot, 2 * bytes);
    copy(to, from, bytes, barrier + 8 * slot);
    copy(to + kHalf, from + apart, bytes, barrier + 8 * slot);
    if (++begun_piece == kPieces) {
      begun_piece = 0;
      source += (GATED ? stride : 2 * stride) * WARPS;
    }
    begun++;
  };

  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (lane == 0) {
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++) barrier_of(barrier + 8 * slot, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (int slot = 0; slot < SLOTS && slot < pieces; slot++) begin(slot);
  }

#if SIDE
  // scales of the blocks of this program's rows: the first rows of its pairs, then the others
  const int block = (GATED ? first : 2 * first) / SIDE;
  const int blocks = last > first ? (GATED ? last - 1 : 2 * last - 1) / SIDE - block + 1 : 0;
  for (int i = threadIdx.x; i < blocks * kRowScales; i += kThreads) {
    block_scales[i] = __ldg(scales + block * kRowScales + i);
#if GATED
    const int up = out / SIDE + block;
    block_scales[blocks * kRowScales + i] = __ldg(scales + up * kRowScales + i);
#endif
  }
#endif
#if NORM
  Quad factors[kGroupsEach];
#pragma unroll
  for (int i = 0; i < kGroupsEach; i++)
    if (i * kThreads + threadIdx.x < kGroups) factors[i] = norm[i * kThreads + threadIdx.x];
#endif
  asm volatile("griddepcontrol.wait;" ::: "memory");

  Quad given[kGroupsEach];
#pragma unroll
  for (int i = 0; i < kGroupsEach; i++)
    if (i * kThreads + threadIdx.x < kGroups) given[i] = x[i * kThreads + threadIdx.x];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kGroupsEach; i++) {
    const int group = i * kThreads + threadIdx.x;
    if (group >= kGroups) continue;
    constexpr int kShare = kEach / 8;  // groups of 8 columns in a lane's values
    const int vector = group / (32 * kShare), owner = group / kShare % 32, share = group % kShare;
    Quad* to = row + vector * kParts * 32 + owner;
#if NORM
    float values[8], scaled[8];
    widen(given[i].x, values), widen(given[i].y, values + 2), widen(given[i].z, values + 4), widen(given[i].w, values + 6);
    widen(factors[i].x, scaled), widen(factors[i].y, scaled + 2);
    widen(factors[i].z, scaled + 4), widen(factors[i].w, scaled + 6);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      squares += values[j] * values[j];
      scaled[j] *= values[j];
    }
#pragma unroll
    for (int j = 0; j < 2; j++)
      to[(2 * share + j) * 32] = Quad{__float_as_uint(scaled[4 * j]), __float_as_uint(scaled[4 * j + 1]),
                                      __float_as_uint(scaled[4 * j + 2]), __float_as_uint(scaled[4 * j + 3])};
#else
    to[share * 32] = given[i];
#endif
  }
#if NORM
  squares = over_warp(squares);
  if (lane == 0) squares_of[warp] = squares;
#endif
  __syncthreads();
  float factor = 1;
#if NORM
  squares = 0;
#pragma unroll
  for (int i = 0; i < WARPS; i++) squares += squares_of[i];
  factor = rsqrtf(squares / COLUMNS + epsilon);
#endif

  int slot = 0, turn = 0;
  for (int pair = first + warp; pair < last; pair += WARPS) {
    float sums[2] = {0, 0}, residual[2] = {0, 0};
    const int target = GATED ? pair : 2 * pair;
#if ADD
    u32 held = *reinterpret_cast<const u32*>(added + target);
    widen(held, residual);
#endif
#if SIDE
    const float* scale = block_scales + (target / SIDE - block) * kRowScales;
    const float* other_scale = GATED ? scale + blocks * kRowScales : scale;
#endif
#pragma unroll 1
    for (int piece = 0; piece < kPieces; piece++) {
      await(barrier + 8 * slot, turn);
      const Quad* here = reinterpret_cast<const Quad*>(memory + (warp * SLOTS + slot) * 2 * kHalf) + lane;
#pragma unroll
      for (int i = 0; i < VECTORS; i++) {
        const int vector = piece * VECTORS + i;
        if (kRowVectors % VECTORS && vector >= kRowVectors) break;
        float values[kEach];
#pragma unroll
        for (int part = 0; part < kParts; part++)
          widen_row(row[(vector * kParts + part) * 32 + lane], values + part * (kEach / kParts));
#if SIDE
        const int at = (vector * 32 + lane) * kEach / SIDE;
        sums[0] += scale[at] * times(here[i * 32], values);
        sums[1] += other_scale[at] * times(here[i * 32 + kHalf / 16], values);
#else
        sums[0] += times(here[i * 32], values);
        sums[1] += times(here[i * 32 + kHalf / 16], values);
#endif
      }
      __syncwarp();
      if (lane == 0 && begun < pieces) begin(slot);
      if (++slot == SLOTS) slot = 0, turn ^= 1;
    }
    sums[0] = over_warp(sums[0]) * factor;
    sums[1] = over_warp(sums[1]) * factor;
    if (lane == 0) {
#if GATED
      y[target] = narrow(sums[0] / (1 + __expf(-sums[0])) * sums[1]);
#else
      *reinterpret_cast<u32*>(y + target) =
          narrow(sums[0] + residual[0]) | static_cast<u32>(narrow(sums[1] + residual[1])) << 16;
#endif
    }
  }
}
