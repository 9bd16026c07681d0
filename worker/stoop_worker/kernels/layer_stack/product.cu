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

static __device__ __forceinline__ bool are_of(Longs words, u32 number) {
  return static_cast<u32>(words.x >> 32) == number && static_cast<u32>(words.y >> 32) == number;
}

static __device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// A thread's part of a row of at most MOST values: `count` groups of four, which are apart by the number of threads.
template <int MOST>
struct Groups {
  static constexpr int kEach = (MOST / 4 + kMultiplying - 1) / kMultiplying;
  int count;

  __device__ __forceinline__ explicit Groups(int width)
      : count((width / 4 + kMultiplying - 1 - static_cast<int>(threadIdx.x)) / kMultiplying) {}

  // from a thread's group to its next one
  static constexpr int kApart = 4 * kMultiplying;

  __device__ __forceinline__ void load(uint2* to, const u16* from) const {
    from += 4 * threadIdx.x;
#pragma unroll
    for (int i = 0; i < kEach; i++)
      if (i < count) to[i] = constant_pairs(from + i * kApart);
  }

  // wait for the values that all programs share
  __device__ __forceinline__ void await(uint2* to, const u32* from, u32 number) const {
    from += 4 * threadIdx.x;
    Quad words[kEach];
#pragma unroll
    for (int i = 0; i < kEach; i++) words[i] = {number, number, number, number};
    SpinLimit limit;
    for (u32 missing = (1u << count) - 1; missing; limit.count()) {
#pragma unroll
      for (int i = 0; i < kEach; i++)
        if (missing >> i & 1) words[i] = shared_quad(from + i * kApart);
      missing = 0;
#pragma unroll
      for (int i = 0; i < kEach; i++)
        if (!is_of(words[i], number)) missing |= 1u << i;
    }
#pragma unroll
    for (int i = 0; i < kEach; i++) to[i] = {pair_of(words[i].x, words[i].y), pair_of(words[i].z, words[i].w)};
  }
};

// Store four values as the sum of two parts of bfloat16, which are `apart` bytes from each other.
static __device__ __forceinline__ void store_parts(char* to, int apart, const float* values) {
  u32 first[2], second[2];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const float a = values[2 * j], b = values[2 * j + 1];
    first[j] = narrow(a, b);
    second[j] = narrow(a - low_of(first[j]), b - high_of(first[j]));
  }
  *reinterpret_cast<uint2*>(to) = {first[0], first[1]};
  *reinterpret_cast<uint2*>(to + apart) = {second[0], second[1]};
}

// Store four values as the sum of parts of float8. Their rest is sixteen times as large as what is missing.
template <int PARTS>
static __device__ __forceinline__ void store_float8s(char* to, int apart, const float* values, float up) {
  constexpr u32 kSixteen = 0x4c004c00, kLess = 0xcc00cc00;
  uint2 rest = {half_pair(values[0] * up, values[1] * up), half_pair(values[2] * up, values[3] * up)};
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    const u32 four = float8s_of(rest);
    *reinterpret_cast<u32*>(to + part * apart) = four;
    if (part + 1 == PARTS) break;
    const uint2 stored = halves_of(four);
    rest.x = multiply_add(stored.x, kLess, multiply_add(rest.x, kSixteen, 0));
    rest.y = multiply_add(stored.y, kLess, multiply_add(rest.y, kSixteen, 0));
  }
}

// Take a row that all programs share, times the norm's weights if it has one, to shared memory; returns the factor of the
// products with it. A `plain` row is whole already.
template <int MOST, bool NORM>
static __device__ __forceinline__ float load_row(char* row, int width, const u32* from, u32 number, const u16* plain,
                                                 const u16* norm, float epsilon, float* squares_of, u32* most_of) {
  const Groups<MOST> groups(NORM ? MOST : width);
  constexpr int kEach = Groups<MOST>::kEach;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint2 factors[NORM ? kEach : 1] = {}, given[kEach] = {};
  constexpr int kApart = groups.kApart * kValueBytes;  // from a thread's group to its next one
  char* to = row + 4 * kValueBytes * threadIdx.x;
  if constexpr (NORM) groups.load(factors, norm);
  if (NORM && plain) {
    groups.load(given, plain);
  } else {
    groups.await(given, from, number);
  }

  if constexpr (!NORM && !FLOAT8) {
#pragma unroll
    for (int i = 0; i < kEach; i++)
      if (i < groups.count) *reinterpret_cast<uint2*>(to + i * kApart) = given[i];
    sync_multiplying();
    return 1;
  }
  float values[kEach][4], squares = 0;
  [[maybe_unused]] u32 most = 0;  // of the values' bits
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    widen(given[i], values[i]);
    if constexpr (NORM) {
      float scaled[4];
      widen(factors[i], scaled);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        squares += values[i][j] * values[i][j];
        values[i][j] *= scaled[j];
        if (FLOAT8) most = max(most, __float_as_uint(values[i][j]) & 0x7fffffff);
      }
    } else if (FLOAT8) {
      most = most_of_halves(most, most_of_halves(given[i].x & 0x7fff7fff, given[i].y & 0x7fff7fff));
    }
  }
  if constexpr (NORM) {
    squares = warp_sum(squares);
    if (lane == 0) squares_of[warp] = squares;
  } else {
    most = max(most & 0xffff0000, most << 16);
  }
  float factor = 1;
#if FLOAT8
  // a power of two brings the largest value near the largest of float8
  most = __reduce_max_sync(0xffffffffu, most);
  if (lane == 0) most_of[warp] = most;
  sync_multiplying();
#pragma unroll
  for (int i = 0; i < kWarps; i++) most = max(most, most_of[i]);
  const int exponent = min(max(static_cast<int>(most >> 23) - 127, -100), 100);
  const float up = as_float(static_cast<u32>(7 - exponent + 127) << 23);
  factor = as_float(static_cast<u32>(exponent - 7 + 127) << 23);
#endif
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    if (i >= groups.count) break;
    const int apart = width * kValueBytes + kPartGap;
#if FLOAT8
    store_float8s<kParts<NORM>>(to + i * kApart, apart, values[i], up);
#else
    store_parts(to + i * kApart, apart, values[i]);
#endif
  }
  sync_multiplying();
  if constexpr (NORM) {
    squares = 0;
#pragma unroll
    for (int i = 0; i < kWarps; i++) squares += squares_of[i];
    factor *= rsqrtf(squares * (1.0f / MOST) + epsilon);
  }
  return factor;
}

// What a lane takes for two spans of float8 values of a row of the weight, and for its column of the row.
struct Loaded {
  Quad above, below, x = {0, 0, 0, 0};

  __device__ __forceinline__ void load(const char* weight, int apart, const char* column, bool given) {
    above = *reinterpret_cast<const Quad*>(weight), below = *reinterpret_cast<const Quad*>(weight + apart);
    if (given) x = *reinterpret_cast<const Quad*>(column);
  }

  __device__ __forceinline__ void multiply(float* sums) const {
    multiply_float8s(sums, above.x, below.x, above.y, below.y, x.x, x.y);
    multiply_float8s(sums, above.z, below.z, above.w, below.w, x.z, x.w);
  }
};

// A warp's part of its team's slots, where the row's values are that it multiplies them by.
constexpr int kColumns = FLOAT8 ? 4 : 2;  // of a span in a product

struct Own {
  Rows rows;
  Turns turns;
  int row, column;  // where the lane's values begin in a slot, and in the row
  int apart;        // from the upper span of the lane's row to the lower one
  bool given;

  bool lower;       // whether the lane's sums are those of lower spans

  // Steps `all` to the next product. A product has 16 rows: 8 of the weight in one span, and the same in the next span. Half
  // of its columns are the parts of the row in the first span, and half in the other. So half of four lanes have a row's
  // sums over the first spans, and half over the others. Every other row has its spans the other way round, so that two
  // rows, which lie whole behind each other, are read from different banks.
  __device__ __forceinline__ Own(Ring& all, Rows of, int width, int parts)
      : rows(of), turns(all, of, static_cast<int>(threadIdx.x) / (32 * kTeam)) {
    const int lane = threadIdx.x % 32, line = lane / 4, part = lane % 4;
    row = min(line, rows.lines - 1) * rows.chunk + line % 2 * kSpan + part * 16;
    apart = line % 2 ? -kSpan : kSpan;
    given = line < 2 * kColumns && line % kColumns < parts;
    column = (given ? line % kColumns * (width * kValueBytes + kPartGap) : 0) + line / kColumns % 2 * kSpan + part * 16;
    lower = (2 * part / kColumns ^ line) % 2;
  }
};

// Multiply the program's rows of a weight by the row. `sums` has kWarps places for each row, of which `sum_of` adds those
// that the row's slots fill.
static __device__ __forceinline__ void multiply(Own own, const char* memory, const char* row, float* sums, int width) {
  const int whole = width * kValueBytes, chunk = own.rows.chunk;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, line = lane / 4, part = lane % 4, member = warp % kTeam;
#if FLOAT8
  float first_part = 0, second_part = 0;
#else
  float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
#endif
  while (own.turns.left > 0) {
    const int first = own.rows.row_at(own.turns.tile), count = own.rows.lines_at(own.turns.tile), start = own.turns.at * chunk;
    const int steps = min(chunk, whole - start) / kStep, begin = steps * member / kTeam;
    const int end = steps * (member + 1) / kTeam;
    const char* slot = memory + own.turns.ring.slot * kSlot;
    const char* weight = slot + own.row + begin * kStep;
    const char* column = row + own.column + start + begin * kStep;
    wait_for(own.turns.ring.full(), own.turns.ring.turn);
#if FLOAT8
    const int top = own.rows.first + first, block = (top + line) / kSide - top / kSide;
    const char* scale = slot + kSlot - kScaleBytes + block * (kScaleBytes / 2) + begin * 8;
    // each half of a step is loaded before the product of the half before; what is loaded last is not used
    Loaded now, next;
    now.load(weight, own.apart, column, own.given);
#pragma unroll 1
    for (int step = begin; step < end; step++) {
      float left[4] = {0, 0, 0, 0}, right[4] = {0, 0, 0, 0};
      next.load(weight + kSide, own.apart, column + kSide, own.given);
      now.multiply(left);
      weight += kStep, column += kStep;
      now.load(weight, own.apart, column, own.given);
      const float2 factors = *reinterpret_cast<const float2*>(scale);
      scale += 8;
      next.multiply(right);
      first_part += factors.x * (own.lower ? left[2] : left[0]) + factors.y * (own.lower ? right[2] : right[0]);
      second_part += factors.x * (own.lower ? left[3] : left[1]) + factors.y * (own.lower ? right[3] : right[1]);
    }
#else
#pragma unroll 4
    for (int step = begin; step < end; step++) {
      const Quad above = *reinterpret_cast<const Quad*>(weight), below = *reinterpret_cast<const Quad*>(weight + own.apart);
      Quad x = {0, 0, 0, 0};
      if (own.given) x = *reinterpret_cast<const Quad*>(column);
      weight += kStep, column += kStep;
      multiply_bfloats(even, above.x, below.x, above.y, below.y, x.x, x.y);
      multiply_bfloats(odd, above.z, below.z, above.w, below.w, x.z, x.w);
    }
#endif
    __syncwarp();
    if (lane == 0) arrive(own.turns.ring.empty());
    // a team's slots of a tile are one after the other
    const int place = own.turns.at % kTeams * kTeam + member;
    const bool ends = own.turns.at + kTeams >= own.rows.chunks;
    own.turns.next(own.rows);
    if (!ends) continue;
#if FLOAT8
    // the first two parts of a span are in one lane, and the third one in the next lane
    float sum = (first_part + second_part / 16) * (part % 2 ? 1.0f / 256 : 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    first_part = second_part = 0;
#else
    float sum = own.lower ? even[2] + even[3] + odd[2] + odd[3] : even[0] + even[1] + odd[0] + odd[1];
#pragma unroll
    for (int i = 0; i < 4; i++) even[i] = odd[i] = 0;
#endif
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (part == 0 && line < count) sums[(first + line) * kWarps + place] = sum;
  }
}

static __device__ __forceinline__ float sum_of(const float* sums, int row, Rows rows) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kTeams; i++) {
    const float2 pair = *reinterpret_cast<const float2*>(sums + row * kWarps + i * kTeam);
    if (i < rows.chunks) sum += pair.x + pair.y;
  }
  return sum;
}
