// The product of a weight and one row, and the barrier of all programs after it.

// a barrier of all programs: each arrives once a phase
struct GridBarrier {
  u32* counter;
  u32 expected = 0;

  __device__ __forceinline__ void arrive() {
    sync_multiplying();
    if (threadIdx.x == 0) add_release(counter);
    expected += PROGRAMS;
  }

  __device__ __forceinline__ void await() const {
    if (threadIdx.x == 0) {
      SpinLimit limit;
      while (load_acquire(counter) < expected) limit.count();
    }
    sync_multiplying();
  }
};

static __device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

static __device__ __forceinline__ float most_of_warp(float value) {
#pragma unroll
  for (int step = 16; step; step /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

// Take a row that other programs have written, times the norm's weights if it has one, to shared memory; returns the
// factor of the products with it. A value there is the sum of one part of 16 bits, or with a norm of two.
template <int WIDTH, bool NORM>
static __device__ __forceinline__ float load_row(u16* row, const u16* from, const u16* norm, float epsilon,
                                                 float* squares_of, float* most_of, const GridBarrier& grid_barrier) {
  constexpr int kGroups = WIDTH / 8, kEach = (kGroups + kMultiplying - 1) / kMultiplying, kApart = WIDTH + kPartGap;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Quad factors[NORM ? kEach : 1], given[kEach];
  if constexpr (NORM) {
#pragma unroll
    for (int i = 0; i < kEach; i++)
      if (i * kMultiplying + threadIdx.x < kGroups) factors[i] = constant_quad(norm + 8 * (i * kMultiplying + threadIdx.x));
  }
  grid_barrier.await();
#pragma unroll
  for (int i = 0; i < kEach; i++)
    if (i * kMultiplying + threadIdx.x < kGroups) given[i] = shared_quad(from + 8 * (i * kMultiplying + threadIdx.x));

  if constexpr (!NORM && !FLOAT8) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int group = i * kMultiplying + threadIdx.x;
      if (group < kGroups) *reinterpret_cast<Quad*>(row + 8 * group) = given[i];
    }
    sync_multiplying();
    return 1;
  }
  float values[kEach][8] = {}, squares = 0;
  [[maybe_unused]] float most = 0;
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    if (i * kMultiplying + threadIdx.x >= kGroups) continue;
    widen(given[i], values[i]);
    if constexpr (NORM) {
      float scaled[8];
      widen(factors[i], scaled);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        squares += values[i][j] * values[i][j];
        values[i][j] *= scaled[j];
      }
    }
#if FLOAT8
#pragma unroll
    for (int j = 0; j < 8; j++) most = fmaxf(most, fabsf(values[i][j]));
#endif
  }
  if constexpr (NORM) {
    squares = warp_sum(squares);
    if (lane == 0) squares_of[warp] = squares;
  }
  float up = 1, factor = 1;
#if FLOAT8
  // a power of two brings the largest value near the largest of float16
  most = most_of_warp(most);
  if (lane == 0) most_of[warp] = most;
  sync_multiplying();
#pragma unroll
  for (int i = 0; i < kWarps; i++) most = fmaxf(most, most_of[i]);
  const int exponent = min(max(static_cast<int>(__float_as_uint(most) >> 23) - 127, -100), 100);
  up = as_float(static_cast<u32>(13 - exponent + 127) << 23);
  factor = as_float(static_cast<u32>(exponent - 13 + 127) << 23);
#endif
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    const int group = i * kMultiplying + threadIdx.x;
    if (group >= kGroups) continue;
    u32 first[4], second[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float a = values[i][2 * j] * up, b = values[i][2 * j + 1] * up;
#if FLOAT8
      first[j] = half_pair(a, b);
      const float2 rounded = of_half_pair(first[j]);
      second[j] = half_pair(a - rounded.x, b - rounded.y);
#else
      first[j] = narrow(a, b);
      second[j] = narrow(a - low_of(first[j]), b - high_of(first[j]));
#endif
    }
    *reinterpret_cast<Quad*>(row + 8 * group) = Quad{first[0], first[1], first[2], first[3]};
    if constexpr (NORM)
      *reinterpret_cast<Quad*>(row + kApart + 8 * group) = Quad{second[0], second[1], second[2], second[3]};
  }
  sync_multiplying();
  if constexpr (NORM) {
    squares = 0;
#pragma unroll
    for (int i = 0; i < kWarps; i++) squares += squares_of[i];
    factor *= rsqrtf(squares / WIDTH + epsilon);
  }
  return factor;
}

// Multiply the program's rows of a weight by the row; each warp's share of the sums goes to sums[row][warp].
template <int WIDTH, int PARTS>
static __device__ __forceinline__ void multiply(Ring& ring, const char* memory, const u16* row, float* sums, Rows rows) {
  constexpr int kRow = WIDTH * kValueBytes, kApart = WIDTH + kPartGap;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, line = lane / 4, part = lane % 4;
  // a lane holds values of lines `line` and `line` + 8 of the tile, and of part `line` of the row
  const u16* mine = row + (line < PARTS ? line * kApart : 0) + part * (16 / kValueBytes);
  for (int tile = 0; tile < rows.count; tile += kTile) {
    const int count = min(kTile, rows.count - tile), chunk = chunk_of(count);
    const int upper = min(line, count - 1) * (chunk + kGap) + part * 16;
    const int lower = min(line + 8, count - 1) * (chunk + kGap) + part * 16;
    float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
#if FLOAT8
    const int block = (rows.first + tile) / kSide;
    const int upper_scale = ((rows.first + tile + line) / kSide - block) * (kScaleBytes / 2);
    const int lower_scale = ((rows.first + tile + line + 8) / kSide - block) * (kScaleBytes / 2);
#endif
    for (int at = 0; at < kRow; at += chunk) {
      const int pieces = min(chunk, kRow - at) / kPiece;
      const char* slot = memory + ring.slot * kSlot;
      wait_for(ring.full(), ring.turn);
#pragma unroll 2
      for (int piece = warp; piece < pieces; piece += kWarps) {
        const Quad above = *reinterpret_cast<const Quad*>(slot + upper + piece * kPiece);
        const Quad below = *reinterpret_cast<const Quad*>(slot + lower + piece * kPiece);
        const u16* here = mine + (at + piece * kPiece) / kValueBytes;
#if FLOAT8
        Quad x = {0, 0, 0, 0}, y = {0, 0, 0, 0};
        if (line < PARTS) x = *reinterpret_cast<const Quad*>(here), y = *reinterpret_cast<const Quad*>(here + 8);
        float first[4] = {0, 0, 0, 0}, second[4] = {0, 0, 0, 0};
        uint2 a = halves_of(above.x), b = halves_of(below.x);
        multiply_halves(first, a.x, b.x, a.y, b.y, x.x, x.y);
        a = halves_of(above.y), b = halves_of(below.y);
        multiply_halves(second, a.x, b.x, a.y, b.y, x.z, x.w);
        a = halves_of(above.z), b = halves_of(below.z);
        multiply_halves(first, a.x, b.x, a.y, b.y, y.x, y.y);
        a = halves_of(above.w), b = halves_of(below.w);
        multiply_halves(second, a.x, b.x, a.y, b.y, y.z, y.w);
        const char* scale = slot + kRowsBytes + piece * kPiece / kSide * 4;
        even[0] += *reinterpret_cast<const float*>(scale + upper_scale) * (first[0] + first[1] + second[0] + second[1]);
        even[2] += *reinterpret_cast<const float*>(scale + lower_scale) * (first[2] + first[3] + second[2] + second[3]);
#else
        Quad x = {0, 0, 0, 0};
        if (line < PARTS) x = *reinterpret_cast<const Quad*>(here);
        multiply_bfloats(even, above.x, below.x, above.y, below.y, x.x, x.y);
        multiply_bfloats(odd, above.z, below.z, above.w, below.w, x.z, x.w);
#endif
      }
      __syncwarp();
      if (lane == 0) arrive(ring.empty());
      ring.next();
    }
    if (part == 0) {
      sums[(tile + line) * kWarps + warp] = even[0] + even[1] + odd[0] + odd[1];
      sums[(tile + line + 8) * kWarps + warp] = even[2] + even[3] + odd[2] + odd[3];
    }
  }
}

static __device__ __forceinline__ float sum_of(const float* sums, int row) {
  const float4 first = *reinterpret_cast<const float4*>(sums + row * kWarps);
  const float4 last = *reinterpret_cast<const float4*>(sums + row * kWarps + 4);
  return ((first.x + first.y) + (first.z + first.w)) + ((last.x + last.y) + (last.z + last.w));
}

