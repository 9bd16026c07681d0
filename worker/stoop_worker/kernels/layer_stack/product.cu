// What programs tell each other, and the product of a weight and one row.

// A program shares a value in one word with the number of its layer, and others read the word until the number is right:
// a barrier of all programs would take several times as long. Every word is written once a layer, so an old word has
// the number before. A program has read all words of a layer before it shares the last of its own, so none is lost.

static __device__ __forceinline__ u32 word_of(u16 value, u32 number) { return static_cast<u32>(value) << 16 | (number & 0xffff); }

static __device__ __forceinline__ bool is_of(u32 word, u32 number) { return !((word ^ number) & 0xffff); }

static __device__ __forceinline__ bool is_of(Quad words, u32 number) {
  return !(((words.x ^ number) | (words.y ^ number) | (words.z ^ number) | (words.w ^ number)) & 0xffff);
}

// two of the values of words
static __device__ __forceinline__ u32 pair_of(u32 low, u32 high) { return low >> 16 | (high & 0xffff0000u); }

static __device__ __forceinline__ u64 word_of(float value, u32 number) {
  return static_cast<u64>(number) << 32 | __float_as_uint(value);
}

static __device__ __forceinline__ bool is_of(u64 word, u32 number) { return static_cast<u32>(word >> 32) == number; }

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

// Take a row that all programs share, times the norm's weights if it has one, to shared memory; returns the factor of the
// products with it. A value there is the sum of one part of 16 bits, or with a norm of two. A `plain` row is whole already.
template <int WIDTH, bool NORM>
static __device__ __forceinline__ float load_row(u16* row, const u32* from, u32 number, const u16* plain, const u16* norm,
                                                 float epsilon, float* squares_of, float* most_of) {
  constexpr int kGroups = WIDTH / 4, kEach = (kGroups + kMultiplying - 1) / kMultiplying, kApart = WIDTH + kPartGap;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint2 factors[NORM ? kEach : 1] = {}, given[kEach] = {};
  if constexpr (NORM) {
#pragma unroll
    for (int i = 0; i < kEach; i++)
      if (i * kMultiplying + threadIdx.x < kGroups) factors[i] = constant_pairs(norm + 4 * (i * kMultiplying + threadIdx.x));
  }
  u32 missing = 0;
#pragma unroll
  for (int i = 0; i < kEach; i++)
    if (i * kMultiplying + threadIdx.x < kGroups) missing |= 1u << i;
  if (NORM && plain) {
#pragma unroll
    for (int i = 0; i < kEach; i++)
      if (missing >> i & 1) given[i] = constant_pairs(plain + 4 * (i * kMultiplying + threadIdx.x));
    missing = 0;
  }
  SpinLimit limit;
  while (missing) {
    Quad words[kEach] = {};
#pragma unroll
    for (int i = 0; i < kEach; i++)
      if (missing >> i & 1) words[i] = shared_quad(from + 4 * (i * kMultiplying + threadIdx.x));
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      if (!(missing >> i & 1) || !is_of(words[i], number)) continue;
      given[i] = {pair_of(words[i].x, words[i].y), pair_of(words[i].z, words[i].w)};
      missing ^= 1u << i;
    }
    limit.count();
  }

  if constexpr (!NORM && !FLOAT8) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int group = i * kMultiplying + threadIdx.x;
      if (group < kGroups) *reinterpret_cast<uint2*>(row + 4 * group) = given[i];
    }
    sync_multiplying();
    return 1;
  }
  float values[kEach][4] = {}, squares = 0;
  [[maybe_unused]] float most = 0;
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    if (i * kMultiplying + threadIdx.x >= kGroups) continue;
    widen(given[i], values[i]);
    if constexpr (NORM) {
      float scaled[4];
      widen(factors[i], scaled);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        squares += values[i][j] * values[i][j];
        values[i][j] *= scaled[j];
      }
    }
#if FLOAT8
#pragma unroll
    for (int j = 0; j < 4; j++) most = fmaxf(most, fabsf(values[i][j]));
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
    u32 first[2], second[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
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
    *reinterpret_cast<uint2*>(row + 4 * group) = {first[0], first[1]};
    if constexpr (NORM) *reinterpret_cast<uint2*>(row + kApart + 4 * group) = {second[0], second[1]};
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
  int order = 0;
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
    for (int at = 0; at < kRow; at += chunk, order++, ring.next()) {
      if (order % kTeams != warp / kTeam) continue;
      const int pieces = min(chunk, kRow - at) / kPiece;
      const int begin = pieces * (warp % kTeam) / kTeam, end = pieces * (warp % kTeam + 1) / kTeam;
      const char* slot = memory + ring.slot * kSlot;
      wait_for(ring.full(), ring.turn);
#if FLOAT8
      constexpr int kPieces = kSide / kPiece;  // of a block
#pragma unroll 2
      for (int first = begin; first < end; first += kPieces) {
        float left[4] = {0, 0, 0, 0}, right[4] = {0, 0, 0, 0};
#pragma unroll
        for (int piece = first; piece < first + kPieces; piece++) {
          const Quad above = *reinterpret_cast<const Quad*>(slot + upper + piece * kPiece);
          const Quad below = *reinterpret_cast<const Quad*>(slot + lower + piece * kPiece);
          const u16* here = mine + at + piece * kPiece;
          Quad x = {0, 0, 0, 0}, y = {0, 0, 0, 0};
          if (line < PARTS) x = *reinterpret_cast<const Quad*>(here), y = *reinterpret_cast<const Quad*>(here + 8);
          uint2 a = halves_of(above.x), b = halves_of(below.x);
          multiply_halves(left, a.x, b.x, a.y, b.y, x.x, x.y);
          a = halves_of(above.y), b = halves_of(below.y);
          multiply_halves(right, a.x, b.x, a.y, b.y, x.z, x.w);
          a = halves_of(above.z), b = halves_of(below.z);
          multiply_halves(left, a.x, b.x, a.y, b.y, y.x, y.y);
          a = halves_of(above.w), b = halves_of(below.w);
          multiply_halves(right, a.x, b.x, a.y, b.y, y.z, y.w);
        }
        const char* scale = slot + kRowsBytes + first / kPieces * 4;
        even[0] += *reinterpret_cast<const float*>(scale + upper_scale) * ((left[0] + left[1]) + (right[0] + right[1]));
        even[2] += *reinterpret_cast<const float*>(scale + lower_scale) * ((left[2] + left[3]) + (right[2] + right[3]));
      }
#else
#pragma unroll 4
      for (int piece = begin; piece < end; piece++) {
        const Quad above = *reinterpret_cast<const Quad*>(slot + upper + piece * kPiece);
        const Quad below = *reinterpret_cast<const Quad*>(slot + lower + piece * kPiece);
        Quad x = {0, 0, 0, 0};
        if (line < PARTS) x = *reinterpret_cast<const Quad*>(mine + (at + piece * kPiece) / kValueBytes);
        multiply_bfloats(even, above.x, below.x, above.y, below.y, x.x, x.y);
        multiply_bfloats(odd, above.z, below.z, above.w, below.w, x.z, x.w);
      }
#endif
      __syncwarp();
      if (lane == 0) arrive(ring.empty());
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

