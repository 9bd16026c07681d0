// What programs tell each other, and the product of a weight and one row.

// A program shares a value in one word with the number of its layer, and others read the word until the number is right:
// a barrier of all programs would take several times as long. Every word is written once a layer, so an old word has
// the number before. A program has read all words of a layer before it shares the last of its own, so none is lost.

static __device__ __forceinline__ u32 word_of(u16 value, u32 number) {
  return static_cast<u32>(value) << 16 | (number & 0xffff);
}

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

// the parts of a row; a float16 value of a row that a power of two has brought near the largest is exact enough
template <bool NORM>
constexpr int kParts = NORM && !FLOAT8 ? 2 : 1;

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
    static_assert(kEach < 32, "a group has a bit");
    Quad words[kEach];
    const u32 zero = word_of(u16{0}, number);
#pragma unroll
    for (int i = 0; i < kEach; i++) words[i] = {zero, zero, zero, zero};
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

// Store four values as the sum of two parts of bfloat16.
static __device__ __forceinline__ void store_parts(u16* to, int apart, const float* values) {
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

// Take a row that all programs share, times the norm's weights if it has one, to shared memory; returns the factor of the
// products with it. A value there is the sum of one part of 16 bits, or with a norm of two. A `plain` row is whole already.
template <int MOST, bool NORM>
static __device__ __forceinline__ float load_row(Program& program, int width, const u32* from, u32 number,
                                                 const u16* plain, const u16* norm, float epsilon) {
  const Groups<MOST> groups(NORM ? MOST : width);
  constexpr int kEach = Groups<MOST>::kEach;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint2 factors[NORM ? kEach : 1] = {}, given[kEach] = {};
  u16* to = program.row + 4 * threadIdx.x;
  if constexpr (NORM) groups.load(factors, norm);
  if (NORM && plain) {
    groups.load(given, plain);
  } else {
    groups.await(given, from, number);
  }

  if constexpr (!NORM && !FLOAT8) {
#pragma unroll
    for (int i = 0; i < kEach; i++)
      if (i < groups.count) *reinterpret_cast<uint2*>(to + i * groups.kApart) = given[i];
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
    if (lane == 0) program.shared.squares[warp] = squares;
  } else {
    most = max(most & 0xffff0000, most << 16);
  }
  float factor = 1;
#if FLOAT8
  // a power of two brings the largest value near the largest of float16
  most = __reduce_max_sync(0xffffffffu, most);
  if (lane == 0) program.shared.most[warp] = most;
  sync_multiplying();
#pragma unroll
  for (int i = 0; i < kWarps; i++) most = max(most, program.shared.most[i]);
  const int exponent = min(max(static_cast<int>(most >> 23) - 127, -100), 100);
  const float up = as_float(static_cast<u32>(13 - exponent + 127) << 23);
  factor = as_float(static_cast<u32>(exponent - 13 + 127) << 23);
#endif
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    if (i >= groups.count) break;
#if FLOAT8
    const float* from = values[i];
    *reinterpret_cast<uint2*>(to + i * groups.kApart) = {half_pair(from[0] * up, from[1] * up),
                                                         half_pair(from[2] * up, from[3] * up)};
#else
    store_parts(to + i * groups.kApart, width + kPartGap, values[i]);
#endif
  }
  sync_multiplying();
  if constexpr (NORM) {
    squares = 0;
#pragma unroll
    for (int i = 0; i < kWarps; i++) squares += program.shared.squares[i];
    factor *= rsqrtf(squares * (1.0f / MOST) + epsilon);
  }
  return factor;
}

// the same without a norm
static __device__ __forceinline__ float load_row(Program& program, int width, const u32* from, u32 number) {
  return load_row<kWidest, false>(program, width, from, number, nullptr, nullptr, 0);
}

// What a lane takes for half of two spans of float8 values of a row of the weight, and for its column of the row.
struct Loaded {
  Quad above, below, x = {0, 0, 0, 0}, y = {0, 0, 0, 0};

  __device__ __forceinline__ void load(const char* weight, const u16* column, bool given) {
    above = *reinterpret_cast<const Quad*>(weight), below = *reinterpret_cast<const Quad*>(weight + kSpan);
    if (given) x = *reinterpret_cast<const Quad*>(column), y = *reinterpret_cast<const Quad*>(column + 8);
  }

  __device__ __forceinline__ void multiply(float* left, float* right) const {
    uint2 a = halves_of(above.x), b = halves_of(below.x);
    multiply_halves(left, a.x, b.x, a.y, b.y, x.x, x.y);
    a = halves_of(above.y), b = halves_of(below.y);
    multiply_halves(right, a.x, b.x, a.y, b.y, x.z, x.w);
    a = halves_of(above.z), b = halves_of(below.z);
    multiply_halves(left, a.x, b.x, a.y, b.y, y.x, y.y);
    a = halves_of(above.w), b = halves_of(below.w);
    multiply_halves(right, a.x, b.x, a.y, b.y, y.z, y.w);
  }
};

// A warp's part of its team's slots, where the row's values are that it multiplies them by.
struct Own {
  Rows rows;
  Turns<kTeams> turns;
  int row, column;  // where the lane's values begin in a slot, and in the row
  int apart;        // from the upper span of the lane's row to the lower one
  bool given, lower;

  // Steps `all` to the next product. A product has 16 rows: 8 of the weight in one span, and the same in the next span. Of
  // its columns two are the parts of the row in the first span, and two in the other. So the first lane of four has a row's
  // sum over the first spans, and the second lane over the others. Without a gap between the rows, every other one has its
  // spans the other way round, so that two rows are read from different banks.
  __device__ __forceinline__ Own(Ring& all, Rows of, int width, int parts)
      : rows(of), turns(all, of, static_cast<int>(threadIdx.x) / (32 * kTeam)) {
    const int lane = threadIdx.x % 32, line = lane / 4, part = lane % 4, turned = kGap ? 0 : line % 2;
    given = line < 4 && line % 2 < parts;
    row = min(line, rows.lines - 1) * (rows.chunk + kGap) + turned * kSpan + part * 16;
    apart = turned ? -kSpan : kSpan;
    column = (given ? line % 2 * (width + kPartGap) : 0) + line / 2 % 2 * (kSpan / kValueBytes) + part * (16 / kValueBytes);
    lower = part % 2 != turned;
  }
};

// Multiply the program's rows of a weight by the row. `sums` has kWarps places for each row, of which `sum_of` adds those
// that the row's slots fill.
static __device__ __forceinline__ void multiply(Own own, const char* memory, const u16* row, float* sums, int width) {
  const int whole = width * kValueBytes, chunk = own.rows.chunk;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, line = lane / 4, part = lane % 4, member = warp % kTeam;
  float upper = 0, lower = 0;
#if !FLOAT8
  float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
#endif
  while (own.turns.left > 0) {
    const int first = own.rows.row_at(own.turns.tile), count = own.rows.lines_at(own.turns.tile), start = own.turns.at * chunk;
    const int steps = min(chunk, whole - start) / (2 * kSpan), begin = steps * member / kTeam;
    const int end = steps * (member + 1) / kTeam;
    const char* slot = memory + own.turns.ring.slot * kSlot;
    const char* weight = slot + own.row + begin * (2 * kSpan);
    const u16* column = row + own.column + (start + begin * (2 * kSpan)) / kValueBytes;
    wait_for(own.turns.ring.full(), own.turns.ring.turn);
#if FLOAT8
    const int top = own.rows.first + first, block = (top + line) / kSide - top / kSide;
    const char* scale = slot + kSlot - kScaleBytes + block * (kScaleBytes / 2) + begin * 8;
    // each half of a step is loaded before the product of the half before; what is loaded last is not used
    Loaded now, next;
    now.load(weight, column, own.given);
#pragma unroll 2
    for (int step = begin; step < end; step++) {
      float left[4] = {0, 0, 0, 0}, right[4] = {0, 0, 0, 0};
      next.load(weight + kPiece, column + kPiece, own.given);
      now.multiply(left, right);
      weight += 2 * kSpan, column += 2 * kSpan;
      now.load(weight, column, own.given);
      const float2 factors = *reinterpret_cast<const float2*>(scale);
      scale += 8;
      next.multiply(left, right);
      upper += factors.x * (left[0] + right[0]);
      lower += factors.y * (left[2] + right[2]);
    }
#else
#pragma unroll 4
    for (int step = begin; step < end; step++) {
      const Quad above = *reinterpret_cast<const Quad*>(weight), below = *reinterpret_cast<const Quad*>(weight + own.apart);
      Quad x = {0, 0, 0, 0};
      if (own.given) x = *reinterpret_cast<const Quad*>(column);
      weight += 2 * kSpan, column += 2 * kSpan / kValueBytes;
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
#if !FLOAT8
    upper = even[0] + even[1] + odd[0] + odd[1], lower = even[2] + even[3] + odd[2] + odd[3];
#pragma unroll
    for (int i = 0; i < 4; i++) even[i] = odd[i] = 0;
#endif
    float sum = own.lower ? lower : upper;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (part == 0 && line < count) sums[(first + line) * kWarps + place] = sum;
    upper = lower = 0;
  }
}

static __device__ __forceinline__ float sum_of(const float* sums, int row, Rows rows) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; i += 2) {
    const float2 pair = *reinterpret_cast<const float2*>(sums + row * kWarps + i);
    if (i < rows.chunks * kTeam) sum += pair.x + pair.y;
  }
  return sum;
}
