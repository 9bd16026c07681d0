// The sizes of a program of stack.cu, and the warps that copy to the ring of slots.

constexpr int kWarps = 8, kMultiplying = 32 * kWarps;
constexpr int kCopiers = 4, kThreads = kMultiplying + 32 * kCopiers;  // one warp begins copies too slowly
constexpr int kTeam = 2, kTeams = kWarps / kTeam;                    // warps of a team, each of which takes a whole slot
constexpr int kUnderWay = UNDER_WAY;  // slots; with more, what programs tell each other would queue behind copies
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

// A team waits only for its own slots, at most 2 kTeams - 1 apart. What the round before has left in a slot must be full by
// then: with more copies under way, the team would take the turn before that one for its own.
static_assert(kUnderWay + 2 * kTeams - 1 <= STAGES, "a team's next slot was full in the round before");
static_assert(kTile % kCopiers == 0, "copiers share a tile evenly");
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
  u16* y;
  u32 *qkv, *attended, *middle, *inner, *out;  // rows of words
  u64* parts;                                   // words of each range of positions
  u32* counters;                                // layers that earlier launches have run, and ended programs
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

static __device__ __forceinline__ void widen(uint2 from, float* to) {
  to[0] = low_of(from.x), to[1] = high_of(from.x), to[2] = low_of(from.y), to[3] = high_of(from.y);
}

static __device__ __forceinline__ float wide(u16 value) { return as_float(static_cast<u32>(value) << 16); }

// a wait that ends the kernel with an error once it has lasted too long
struct SpinLimit {
  u32 tries = 0;
  u64 begun = 0;

  __device__ __forceinline__ void count() {
    if (++tries % 4096) return;
    const u64 now = nanoseconds();
    if (!begun) begun = now;
    if (now - begun > SECONDS * 1000000000ull) trap();
  }
};

static __device__ __forceinline__ void wait_for(u32 barrier, int turn) {
  SpinLimit limit;
  while (!phase_ended(barrier, turn)) limit.count();
}

static __device__ __forceinline__ void sync_multiplying() { named_barrier(kMultiplying); }

// bytes of each row in a slot that holds so many rows
static __device__ __forceinline__ int chunk_of(int rows) {
  return min(kMostChunk, (kRowsBytes / rows - kGap) / kWhole * kWhole);
}

// the slots, as seen by one warp
struct Ring {
  u32 memory, barriers;
  int slot = 0, turn = 0, begun = 0;

  __device__ __forceinline__ u32 full() const { return barriers + 16 * slot; }
  __device__ __forceinline__ u32 empty() const { return barriers + 16 * slot + 8; }
  __device__ __forceinline__ u32 place() const { return memory + slot * kSlot; }
  __device__ __forceinline__ void next() {
    if (++slot == STAGES) slot = 0, turn ^= 1;
  }

  // a copier's wait for room, and for earlier copies
  __device__ __forceinline__ void await_room() {
    const bool around = slot < kUnderWay;
    if (begun == kUnderWay) wait_for(barriers + 16 * (slot - kUnderWay + (around ? STAGES : 0)), around ? turn ^ 1 : turn);
    begun += begun < kUnderWay;
    wait_for(empty(), turn ^ 1);
  }
};

struct Rows {
  int first, count;
};

static __device__ __forceinline__ Rows rows_of(int rows) {
  const int first = static_cast<long long>(rows) * blockIdx.x / PROGRAMS;
  return {first, static_cast<int>(static_cast<long long>(rows) * (blockIdx.x + 1) / PROGRAMS) - first};
}

// the range of positions of a program, which may be empty; `count` ranges of a key head are not
struct Range {
  int head, split, count, first, last;

  __device__ __forceinline__ explicit Range(int context) {
    head = blockIdx.x / SPLITS, split = blockIdx.x % SPLITS;
    const int tiles = max((context + kTile - 1) / kTile, 1), each = (tiles + SPLITS - 1) / SPLITS;
    count = (tiles + each - 1) / each;
    first = split * each * kTile;
    last = min(first + each * kTile, context);
    if (!attends()) first = last = 0;
  }

  __device__ __forceinline__ bool shares() const { return head < KEY_HEADS; }
  __device__ __forceinline__ bool attends() const { return shares() && split < count; }
};

// the warps that copy: each takes every fourth line of a slot

template <int WIDTH>
static __device__ __forceinline__ void copy_rows(Ring& ring, const char* weight, const float* scales, Rows rows,
                                                  int copier, int lane) {
  constexpr int kRow = WIDTH * kValueBytes;
  for (int tile = 0; tile < rows.count; tile += kTile) {
    const int count = min(kTile, rows.count - tile), chunk = chunk_of(count), first = rows.first + tile;
    const int line = copier + kCopiers * lane, lines = (count - copier + kCopiers - 1) / kCopiers;
    const char* source = weight + static_cast<long long>(first + line) * kRow;
    for (int at = 0; at < kRow; at += chunk) {
      const int bytes = min(chunk, kRow - at);
      const bool scaled = FLOAT8 && copier < 2;
      ring.await_room();
      if (lane == 0) expect(ring.full(), lines * bytes + (scaled ? 4 * bytes / kSide : 0));
      __syncwarp();
      if (line < count) copy(ring.place() + line * (chunk + kGap), source + at, bytes, ring.full());
      if (scaled && lane == 31) {
        const int block = (copier == 0 ? first : first + count - 1) / kSide;
        copy(ring.place() + kRowsBytes + copier * (kScaleBytes / 2),
             reinterpret_cast<const char*>(scales + block * (WIDTH / kSide) + at / kSide), 4 * bytes / kSide, ring.full());
      }
      ring.next();
    }
  }
}

static __device__ __forceinline__ void copy_heads(Ring& ring, const Step& step, int layer, const Range& range,
                                                   int copier, int lane) {
  constexpr int kQuads = kHeadBytes / 16;
  const char* keys = step.pool + layer * step.layer_bytes + range.head * kHeadBytes;
  for (int start = range.first; start < range.last; start += kPositions) {
    const int count = min(kPositions, range.last - start);
    ring.await_room();
    // heads are too small for the copy engine
#pragma unroll 4
    for (int i = 32 * copier + lane; i < 2 * count * kQuads; i += 32 * kCopiers) {
      const int row = i / kQuads, line = row % count, position = start + line, at = i % kQuads * 16;
      const long long page = __ldg(step.table + position / PAGE);
      const char* source = keys + (page * PAGE + position % PAGE) * (KEY_HEADS * kHeadBytes) + at;
      const bool key = row < count;
      copy_quad(ring.place() + ((key ? 0 : kPositions) + line) * kHeadRow + at, source + (key ? 0 : step.values_offset));
    }
    arrive_behind_quads(ring.full());
    __syncwarp();
    if (lane == 0) arrive(ring.full());
    ring.next();
  }
}

