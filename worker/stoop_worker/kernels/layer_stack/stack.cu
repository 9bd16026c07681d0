// All layers of a pre-norm decoder for one row, in one launch of one program a multiprocessor. A warp of each program
// copies the program's rows of every weight, and its part of the keys and values, to a ring of slots in shared memory; it
// runs ahead of the other warps and waits for no other program, so that memory is read without a pause from the first
// layer to the last. The other warps multiply what has arrived by the row, on tensor cores, and meet those of all programs
// after each product, because the next one needs the whole row.
//
// The host defines DIM, INNER, HEADS, KEY_HEADS, HEAD_DIM, FREQUENCIES (half of a head's rotated channels), NORMS (of
// heads), FLOAT8 (weights are e4m3 with a scale for each block of 128 x 128, else bfloat16), PAGE, PROGRAMS, SPLITS (ranges
// of positions), STAGES (slots of the ring), and SECONDS, after which a wait gives up. Activations are bfloat16.

constexpr int kWarps = 8, kMultiplying = 32 * kWarps, kThreads = kMultiplying + 32;
constexpr int kValueBytes = FLOAT8 ? 1 : 2;
constexpr int kGroup = HEADS / KEY_HEADS, kQueries = HEADS * HEAD_DIM, kMade = (HEADS + 2 * KEY_HEADS) * HEAD_DIM;
constexpr int kTile = 16;                              // rows of a weight that are multiplied at once
constexpr int kPiece = 64, kGap = 64;                  // bytes of a row in two products; bytes between rows in a slot
constexpr int kMostChunk = 4096, kWhole = 8 * kPiece;  // bytes of a row in a slot
constexpr int kRowsBytes = kTile * (1024 + kGap);
constexpr int kSide = 128, kScaleBytes = FLOAT8 ? 2 * 4 * kMostChunk / kSide : 0;
constexpr int kSlot = kRowsBytes + kScaleBytes;
constexpr int kPositions = 32;                       // of keys and values in a slot
constexpr int kHeadBytes = 2 * HEAD_DIM, kHeadGap = 16, kHeadRow = kHeadBytes + kHeadGap;
constexpr int kFields = 12;                          // of a layer's record
constexpr int kPartGap = FLOAT8 ? 8 : 32;            // values between the parts of a row
constexpr float kLowest = -1e30f;

static_assert(2 * kPositions * kHeadRow <= kRowsBytes && kGroup <= 8, "a slot holds whole heads, of at most 8 queries");

static __device__ constexpr int most_rows(int rows) { return (rows + PROGRAMS - 1) / PROGRAMS; }
static __device__ constexpr int whole_tiles(int rows) { return (rows + kTile - 1) / kTile * kTile; }
static __device__ constexpr int larger(int a, int b) { return a > b ? a : b; }

constexpr int kGates = whole_tiles(most_rows(INNER));
constexpr int kSums = larger(2 * kGates, larger(whole_tiles(most_rows(kMade)), whole_tiles(most_rows(DIM))));
constexpr int kRowValues = larger(2 * DIM + kPartGap, larger(kQueries, INNER));
constexpr int kRowRoom = (larger(2 * kRowValues, 4 * kWarps * kGroup * HEAD_DIM) + 127) / 128 * 128;

struct Step {
  const u16* x;
  u16 *y, *qkv, *attended, *inner;
  float *parts, *part_sums;
  u32* counters;  // arrivals at the meeting, ended programs, then arrivals of each key head's ranges
  const u64* layers;
  char* pool;
  u64 layer_bytes, values_offset;  // from a layer's keys to the next layer's, and to its values
  const int* table;
  const int* context;
  const long long *position, *slot;
  const float* rotations;
  float epsilon, head_epsilon, scale;
  int count;
};

// fields of a layer's record; scales are at 4 above their weight
enum { kQkv, kOut, kGateUp, kDown, kQkvScales, kOutScales, kGateUpScales, kDownScales, kNorm, kMlpNorm, kQNorm, kKNorm };

static __device__ __forceinline__ float low_of(u32 pair) { return as_float(pair << 16); }
static __device__ __forceinline__ float high_of(u32 pair) { return as_float(pair & 0xffff0000u); }

static __device__ __forceinline__ void widen(Quad from, float* to) {
  to[0] = low_of(from.x), to[1] = high_of(from.x), to[2] = low_of(from.y), to[3] = high_of(from.y);
  to[4] = low_of(from.z), to[5] = high_of(from.z), to[6] = low_of(from.w), to[7] = high_of(from.w);
}

static __device__ __forceinline__ float wide(u16 value) { return as_float(static_cast<u32>(value) << 16); }

// a wait that ends the kernel with an error once it has lasted too long
struct Patience {
  u32 tries = 0;
  u64 begun = 0;

  __device__ __forceinline__ void lose() {
    if (++tries % 4096) return;
    const u64 now = nanoseconds();
    if (!begun) begun = now;
    if (now - begun > SECONDS * 1000000000ull) give_up();
  }
};

static __device__ __forceinline__ void await_patiently(u32 barrier, int turn) {
  Patience patience;
  while (!ended(barrier, turn)) patience.lose();
}

static __device__ __forceinline__ void meet_in_program() { meet(kMultiplying); }

// bytes of each row in a slot that holds so many rows
static __device__ __forceinline__ int chunk_of(int rows) {
  return min(kMostChunk, (kRowsBytes / rows - kGap) / kWhole * kWhole);
}

// the slots, as seen by one warp
struct Ring {
  u32 memory, barriers;
  int slot = 0, turn = 0;

  __device__ __forceinline__ u32 full() const { return barriers + 16 * slot; }
  __device__ __forceinline__ u32 empty() const { return barriers + 16 * slot + 8; }
  __device__ __forceinline__ u32 place() const { return memory + slot * kSlot; }
  __device__ __forceinline__ void next() {
    if (++slot == STAGES) slot = 0, turn ^= 1;
  }
};

struct Rows {
  int first, count;
};

static __device__ __forceinline__ Rows rows_of(int rows) {
  const int first = static_cast<long long>(rows) * blockIdx.x / PROGRAMS;
  return {first, static_cast<int>(static_cast<long long>(rows) * (blockIdx.x + 1) / PROGRAMS) - first};
}

// the range of positions of a program
struct Range {
  int head, split, active, first, last;

  __device__ __forceinline__ explicit Range(int context) {
    head = blockIdx.x / SPLITS, split = blockIdx.x % SPLITS;
    const int tiles = max((context + kTile - 1) / kTile, 1), each = (tiles + SPLITS - 1) / SPLITS;
    active = (tiles + each - 1) / each;
    first = split * each * kTile;
    last = min(first + each * kTile, context);
    if (head >= KEY_HEADS || split >= active) first = last = active = 0;
  }
};

// the warp that copies

template <int WIDTH>
static __device__ __forceinline__ void bring_rows(Ring& ring, const char* weight, const float* scales, Rows rows,
                                                  int lane) {
  constexpr int kRow = WIDTH * kValueBytes;
  for (int tile = 0; tile < rows.count; tile += kTile) {
    const int count = min(kTile, rows.count - tile), chunk = chunk_of(count), first = rows.first + tile;
    const char* source = weight + static_cast<long long>(first + lane) * kRow;
    for (int at = 0; at < kRow; at += chunk) {
      const int bytes = min(chunk, kRow - at);
      await_patiently(ring.empty(), ring.turn ^ 1);
      if (lane == 0) expect(ring.full(), count * bytes + (FLOAT8 ? 2 * 4 * bytes / kSide : 0));
      __syncwarp();
      if (lane < count) copy(ring.place() + lane * (chunk + kGap), source + at, bytes, ring.full());
#if FLOAT8
      if (lane >= kTile && lane < kTile + 2) {
        const int block = (lane == kTile ? first : first + count - 1) / kSide;
        copy(ring.place() + kRowsBytes + (lane - kTile) * (kScaleBytes / 2),
             reinterpret_cast<const char*>(scales + block * (WIDTH / kSide) + at / kSide), 4 * bytes / kSide, ring.full());
      }
#endif
      ring.next();
    }
  }
}

static __device__ __forceinline__ void bring_heads(Ring& ring, const Step& step, int layer, const Range& range, int lane) {
  const char* keys = step.pool + layer * step.layer_bytes + range.head * kHeadBytes;
  for (int start = range.first; start < range.last; start += kPositions) {
    const int count = min(kPositions, range.last - start), position = start + lane;
    long long source = 0;
    if (lane < count) {
      const long long page = __ldg(step.table + position / PAGE);
      source = (page * PAGE + position % PAGE) * (KEY_HEADS * kHeadBytes);
    }
    await_patiently(ring.empty(), ring.turn ^ 1);
    if (lane == 0) expect(ring.full(), 2 * count * kHeadBytes);
    __syncwarp();
    if (lane < count) {
      copy(ring.place() + lane * kHeadRow, keys + source, kHeadBytes, ring.full());
      copy(ring.place() + (kPositions + lane) * kHeadRow, keys + step.values_offset + source, kHeadBytes, ring.full());
    }
    ring.next();
  }
}

// the warps that multiply

// the meeting of all programs: each arrives once a turn
struct Meeting {
  u32* counter;
  u32 expected = 0;

  __device__ __forceinline__ void arrive() {
    meet_in_program();
    if (threadIdx.x == 0) add_behind_writes(counter);
    expected += PROGRAMS;
  }

  __device__ __forceinline__ void await() const {
    if (threadIdx.x == 0) {
      Patience patience;
      while (seen(counter) < expected) patience.lose();
    }
    meet_in_program();
  }
};

static __device__ __forceinline__ float over_warp(float value) {
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
static __device__ __forceinline__ float take_row(u16* row, const u16* from, const u16* norm, float epsilon,
                                                 float* squares_of, float* most_of, const Meeting& meeting) {
  constexpr int kGroups = WIDTH / 8, kEach = (kGroups + kMultiplying - 1) / kMultiplying, kApart = WIDTH + kPartGap;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Quad factors[NORM ? kEach : 1], given[kEach];
  if constexpr (NORM) {
#pragma unroll
    for (int i = 0; i < kEach; i++)
      if (i * kMultiplying + threadIdx.x < kGroups) factors[i] = constant_quad(norm + 8 * (i * kMultiplying + threadIdx.x));
  }
  meeting.await();
#pragma unroll
  for (int i = 0; i < kEach; i++)
    if (i * kMultiplying + threadIdx.x < kGroups) given[i] = shared_quad(from + 8 * (i * kMultiplying + threadIdx.x));

  if constexpr (!NORM && !FLOAT8) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int group = i * kMultiplying + threadIdx.x;
      if (group < kGroups) *reinterpret_cast<Quad*>(row + 8 * group) = given[i];
    }
    meet_in_program();
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
    squares = over_warp(squares);
    if (lane == 0) squares_of[warp] = squares;
  }
  float up = 1, factor = 1;
#if FLOAT8
  // a power of two brings the largest value near the largest of float16
  most = most_of_warp(most);
  if (lane == 0) most_of[warp] = most;
  meet_in_program();
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
  meet_in_program();
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
      await_patiently(ring.full(), ring.turn);
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

constexpr int kPairs = HEAD_DIM / 64;  // of a head's channels, for each lane
constexpr int kHead = HEAD_DIM + 8;    // values from a head to the next one
enum { kNewKey = 8, kNewValue = 9, kFresh = 10 };  // places behind the queries

struct Rotation {
  float cosines[kPairs], sines[kPairs];
};

// Take the queries of the program's key head, and its new key and value, to shared memory, normed and rotated.
static __device__ __forceinline__ void take_heads(u16* heads, const u16* qkv, const u16* q_norm, const u16* k_norm,
                                                  const Rotation& rotation, const Range& range, float epsilon) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int given = warp; given < kGroup + 2; given += kWarps) {
    const bool query = given < kGroup, value = given == kGroup + 1;
    const int head = query ? range.head * kGroup + given : HEADS + (value ? KEY_HEADS : 0) + range.head;
    const u16* from = qkv + head * HEAD_DIM;
    u16* to = heads + (query ? given : value ? kNewValue : kNewKey) * kHead;
    float real[kPairs], imaginary[kPairs], squares = 0;
#pragma unroll
    for (int i = 0; i < kPairs; i++) {
      const int pair = 32 * i + lane;
      const bool turned = !value && pair < FREQUENCIES;
      real[i] = wide(shared_half(from + (turned ? pair : 2 * pair)));
      imaginary[i] = wide(shared_half(from + (turned ? FREQUENCIES + pair : 2 * pair + 1)));
      squares += real[i] * real[i] + imaginary[i] * imaginary[i];
    }
#if NORMS
    if (!value) {
      const float factor = rsqrtf(over_warp(squares) / HEAD_DIM + epsilon);
      const u16* norm = query ? q_norm : k_norm;
#pragma unroll
      for (int i = 0; i < kPairs; i++) {
        const int pair = 32 * i + lane;
        const bool turned = pair < FREQUENCIES;
        real[i] = wide(narrow(real[i] * factor * wide(__ldg(norm + (turned ? pair : 2 * pair)))));
        imaginary[i] = wide(narrow(imaginary[i] * factor * wide(__ldg(norm + (turned ? FREQUENCIES + pair : 2 * pair + 1)))));
      }
    }
#endif
#pragma unroll
    for (int i = 0; i < kPairs; i++) {
      const int pair = 32 * i + lane;
      float a = real[i], b = imaginary[i];
      if (!value && pair < FREQUENCIES) {
        a = real[i] * rotation.cosines[i] - imaginary[i] * rotation.sines[i];
        b = real[i] * rotation.sines[i] + imaginary[i] * rotation.cosines[i];
      }
      *reinterpret_cast<u32*>(to + 2 * pair) = narrow(a, b);
    }
  }
}

// The running softmax of a warp's positions; a lane has query lane / 4, and two of every eight channels.
struct Mixture {
  float top = kLowest, total = 0, mixed[HEAD_DIM / 8][2];

  // attend to the positions of a tile, whose rows follow `keys` and `values`
  __device__ __forceinline__ void take(const u16* heads, const char* keys, const char* values, int count, float scale) {
    const int lane = threadIdx.x % 32, line = lane / 4, part = lane % 4;
    float scores[2][4] = {};
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; step++) {
      const u16* query = heads + line * kHead + step * 16 + 2 * part;
      const u32 a = *reinterpret_cast<const u32*>(query), c = *reinterpret_cast<const u32*>(query + 8);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const char* key = keys + (8 * half + line) * kHeadRow + step * 32 + 4 * part;
        multiply_bfloats(scores[half], a, 0, c, 0, *reinterpret_cast<const u32*>(key),
                         *reinterpret_cast<const u32*>(key + 16));
      }
    }
    float peak = top;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        scores[half][i] = 8 * half + 2 * part + i < count ? scores[half][i] * scale : kLowest;
        peak = fmaxf(peak, scores[half][i]);
      }
    peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 1));
    peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 2));
    float sum = 0;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        scores[half][i] = 8 * half + 2 * part + i < count ? exp2f(scores[half][i] - peak) : 0;
        sum += scores[half][i];
      }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const float kept = exp2f(top - peak);
    top = peak;
    total = total * kept + sum;
    const u32 a = narrow(scores[0][0], scores[0][1]), c = narrow(scores[1][0], scores[1][1]);
    const u32 value = shared_address(values + (lane / 8 % 2 * 8 + lane % 8) * kHeadRow + lane / 16 * 16);
#pragma unroll
    for (int eight = 0; eight < HEAD_DIM / 8; eight += 2) {
      u32 x[4];
      turned_tiles(x, value + eight * 16);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float sums[4] = {mixed[eight + i][0] * kept, mixed[eight + i][1] * kept, 0, 0};
        multiply_bfloats(sums, a, 0, c, 0, x[2 * i], x[2 * i + 1]);
        mixed[eight + i][0] = sums[0], mixed[eight + i][1] = sums[1];
      }
    }
  }
};

struct Shared {
  u64 barriers[2 * STAGES];
  float squares[kWarps], most[kWarps];
  float tops[kWarps][8], totals[kWarps][8];
  u32 last;
  alignas(16) float sums[kSums * kWarps];
  alignas(16) u16 heads[kFresh * kHead];
};

// Attend to the program's range of positions. The last program of a key head to end combines its ranges.
static __device__ __forceinline__ void attend(const Step& step, Ring& ring, char* memory, u16* row, Shared& shared,
                                              const Range& range, int layer, int context, long long slot) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, line = lane / 4, part = lane % 4;
  const int newest = slot >= 0 ? context - 1 : -1;
  const int tiles = (range.last - range.first + kTile - 1) / kTile;
  Mixture mixture;
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 8; i++) mixture.mixed[i][0] = mixture.mixed[i][1] = 0;
  for (int tile = 0; tile < tiles; tile++) {
    const int half = tile % 2;
    if (half == 0) await_patiently(ring.full(), ring.turn);
    if (tile % kWarps == warp) {
      char* keys = memory + ring.slot * kSlot + half * kTile * kHeadRow;
      char* values = keys + kPositions * kHeadRow;
      const int first = range.first + tile * kTile, count = min(kTile, range.last - first);
      constexpr int kQuads = kHeadBytes / 16;
      if (newest >= first && newest < first + count) {
        for (int i = lane; i < 2 * kQuads; i += 32) {
          const int place = i / kQuads, quad = i % kQuads;
          *reinterpret_cast<Quad*>((place ? values : keys) + (newest - first) * kHeadRow + quad * 16) =
              *reinterpret_cast<const Quad*>(shared.heads + (kNewKey + place) * kHead + quad * 8);
        }
      }
      // what the slot held before may not be finite
      for (int i = count * kQuads + lane; i < kTile * kQuads; i += 32)
        *reinterpret_cast<Quad*>(values + i / kQuads * kHeadRow + i % kQuads * 16) = Quad{0, 0, 0, 0};
      __syncwarp();
      mixture.take(shared.heads, keys, values, count, step.scale);
      // the copy engine writes there next
      show_writes();
    }
    if (half == 1 || tile + 1 == tiles) {
      __syncwarp();
      if (lane == 0) arrive(ring.empty());
      ring.next();
    }
  }

  // the warps' mixtures
  const int mixing = min(tiles, kWarps);
  float* mixed = reinterpret_cast<float*>(row);
  if (warp < mixing && line < kGroup) {
    if (part == 0) shared.tops[warp][line] = mixture.top, shared.totals[warp][line] = mixture.total;
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++)
      *reinterpret_cast<float2*>(mixed + (warp * kGroup + line) * HEAD_DIM + 8 * i + 2 * part) =
          make_float2(mixture.mixed[i][0], mixture.mixed[i][1]);
  }
  // one of the programs stores the new key and value
  if (newest >= range.first && newest < range.last && threadIdx.x < HEAD_DIM) {
    const int place = threadIdx.x / (HEAD_DIM / 2), pair = threadIdx.x % (HEAD_DIM / 2);
    char* to = step.pool + layer * step.layer_bytes + place * step.values_offset +
               (slot * KEY_HEADS + range.head) * kHeadBytes;
    reinterpret_cast<u32*>(to)[pair] = *reinterpret_cast<const u32*>(shared.heads + (kNewKey + place) * kHead + 2 * pair);
  }
  meet_in_program();
  u16* out = step.attended + range.head * kGroup * HEAD_DIM;
  float* parts = step.parts + (range.head * SPLITS + range.split) * kGroup * HEAD_DIM;
  float* part_sums = step.part_sums + (range.head * SPLITS + range.split) * kGroup * 2;
  for (int pair = threadIdx.x; pair < kGroup * HEAD_DIM / 2; pair += kMultiplying) {
    const int head = 2 * pair / HEAD_DIM;
    float top = kLowest, total = 0, a = 0, b = 0;
    for (int i = 0; i < mixing; i++) top = fmaxf(top, shared.tops[i][head]);
    for (int i = 0; i < mixing; i++) {
      const float kept = exp2f(shared.tops[i][head] - top);
      const float2 value = *reinterpret_cast<const float2*>(mixed + i * kGroup * HEAD_DIM + 2 * pair);
      total += kept * shared.totals[i][head];
      a += kept * value.x, b += kept * value.y;
    }
    if (range.active == 1) {
      const float whole = total > 0 ? 1 / total : 0;
      *reinterpret_cast<u32*>(out + 2 * pair) = narrow(a * whole, b * whole);
    } else {
      *reinterpret_cast<float2*>(parts + 2 * pair) = make_float2(a, b);
      if (2 * pair % HEAD_DIM == 0) *reinterpret_cast<float2*>(part_sums + 2 * head) = make_float2(top, total);
    }
  }
  if (range.active == 1) return;

  meet_in_program();
  if (threadIdx.x == 0) {
    shared.last = count_behind_writes(step.counters + 2 + range.head) + 1 == static_cast<u32>(range.active);
  }
  meet_in_program();
  if (!shared.last) return;
  parts -= range.split * kGroup * HEAD_DIM, part_sums -= range.split * kGroup * 2;
  for (int pair = threadIdx.x; pair < kGroup * HEAD_DIM / 2; pair += kMultiplying) {
    const int head = 2 * pair / HEAD_DIM;
    float2 sums[SPLITS], values[SPLITS];
#pragma unroll
    for (int i = 0; i < SPLITS; i++) {
      sums[i] = make_float2(kLowest, 0), values[i] = make_float2(0, 0);
      if (i < range.active) {
        sums[i] = shared_pair(part_sums + i * kGroup * 2 + 2 * head);
        values[i] = shared_pair(parts + i * kGroup * HEAD_DIM + 2 * pair);
      }
    }
    float top = kLowest, total = 0, a = 0, b = 0;
#pragma unroll
    for (int i = 0; i < SPLITS; i++) top = fmaxf(top, sums[i].x);
#pragma unroll
    for (int i = 0; i < SPLITS; i++) {
      const float kept = exp2f(sums[i].x - top);
      total += kept * sums[i].y;
      a += kept * values[i].x, b += kept * values[i].y;
    }
    const float whole = total > 0 ? 1 / total : 0;
    *reinterpret_cast<u32*>(out + 2 * pair) = narrow(a * whole, b * whole);
  }
  if (threadIdx.x == 0) step.counters[2 + range.head] = 0;
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) layer_stack(const __grid_constant__ Step step) {
  char* memory = dynamic_memory();
  u16* row = reinterpret_cast<u16*>(memory + STAGES * kSlot);
  Shared& shared = *reinterpret_cast<Shared*>(memory + STAGES * kSlot + kRowRoom);
  u64* layers = reinterpret_cast<u64*>(&shared + 1);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < step.count * kFields; i += kThreads) layers[i] = step.layers[i];
  for (int i = threadIdx.x; i < kFresh * kHead; i += kThreads) shared.heads[i] = 0;
  Ring ring{shared_address(memory), shared_address(shared.barriers)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      barrier_of(ring.barriers + 16 * i, 1);
      barrier_of(ring.barriers + 16 * i + 8, kWarps);
    }
    show_barriers();
  }
  __syncthreads();

  const int context = *step.context;
  const Range range(context);
  const Rows made = rows_of(kMade), summed = rows_of(DIM), gates = rows_of(INNER);
  const Rows ups{INNER + gates.first, gates.count};

  if (warp == kWarps) {
    for (int layer = 0; layer < step.count; layer++) {
      const u64* of = layers + layer * kFields;
      auto weight = [&](int field) { return reinterpret_cast<const char*>(of[field]); };
      auto scales = [&](int field) { return reinterpret_cast<const float*>(of[field + 4]); };
      bring_rows<DIM>(ring, weight(kQkv), scales(kQkv), made, lane);
      bring_heads(ring, step, layer, range, lane);
      bring_rows<kQueries>(ring, weight(kOut), scales(kOut), summed, lane);
      bring_rows<DIM>(ring, weight(kGateUp), scales(kGateUp), gates, lane);
      bring_rows<DIM>(ring, weight(kGateUp), scales(kGateUp), ups, lane);
      bring_rows<INNER>(ring, weight(kDown), scales(kDown), summed, lane);
    }
    return;
  }

  const long long slot = *step.slot;
  Rotation rotation;
#pragma unroll
  for (int i = 0; i < kPairs; i++) {
    const int pair = 32 * i + lane;
    const float* from = step.rotations + 2 * (*step.position * FREQUENCIES + pair);
    rotation.cosines[i] = pair < FREQUENCIES ? from[0] : 1;
    rotation.sines[i] = pair < FREQUENCIES ? from[1] : 0;
  }
  const int mine = threadIdx.x;
  float residual = mine < summed.count ? wide(step.x[summed.first + mine]) : 0;
  Meeting meeting{step.counters};

  for (int layer = 0; layer < step.count; layer++) {
    const u64* of = layers + layer * kFields;
    auto halves = [&](int field) { return reinterpret_cast<const u16*>(of[field]); };
    float factor = take_row<DIM, true>(row, layer ? step.y : step.x, halves(kNorm), step.epsilon, shared.squares,
                                       shared.most, meeting);
    multiply<DIM, 2>(ring, memory, row, shared.sums, made);
    meet_in_program();
    if (mine < made.count) step.qkv[made.first + mine] = narrow(sum_of(shared.sums, mine) * factor);
    meeting.arrive();

    meeting.await();
    if (range.active) {
      take_heads(shared.heads, step.qkv, halves(kQNorm), halves(kKNorm), rotation, range, step.head_epsilon);
      meet_in_program();
      attend(step, ring, memory, row, shared, range, layer, context, slot);
    }
    meeting.arrive();

    factor = take_row<kQueries, false>(row, step.attended, nullptr, 0, shared.squares, shared.most, meeting);
    multiply<kQueries, 1>(ring, memory, row, shared.sums, summed);
    meet_in_program();
    if (mine < summed.count) {
      const u16 rounded = narrow(residual + sum_of(shared.sums, mine) * factor);
      residual = wide(rounded);
      step.y[summed.first + mine] = rounded;
    }
    meeting.arrive();

    factor = take_row<DIM, true>(row, step.y, halves(kMlpNorm), step.epsilon, shared.squares, shared.most, meeting);
    multiply<DIM, 2>(ring, memory, row, shared.sums, gates);
    multiply<DIM, 2>(ring, memory, row, shared.sums + kGates * kWarps, ups);
    meet_in_program();
    if (mine < gates.count) {
      const float gate = sum_of(shared.sums, mine) * factor, up = sum_of(shared.sums, kGates + mine) * factor;
      step.inner[gates.first + mine] = narrow(gate / (1 + __expf(-gate)) * up);
    }
    meeting.arrive();

    factor = take_row<INNER, false>(row, step.inner, nullptr, 0, shared.squares, shared.most, meeting);
    multiply<INNER, 1>(ring, memory, row, shared.sums, summed);
    meet_in_program();
    if (mine < summed.count) {
      const u16 rounded = narrow(residual + sum_of(shared.sums, mine) * factor);
      residual = wide(rounded);
      step.y[summed.first + mine] = rounded;
    }
    if (layer + 1 < step.count) meeting.arrive();
  }

  // the last program to end leaves the counters as it found them; no program waits for them any more
  if (threadIdx.x == 0) {
    if (count_behind_writes(step.counters + 1) + 1 == PROGRAMS) step.counters[0] = step.counters[1] = 0;
  }
}
