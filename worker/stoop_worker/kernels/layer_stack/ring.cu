// The sizes of a program, and the warps that copy to the ring of slots.

constexpr int kWarps = 8, kMultiplying = 32 * kWarps;
constexpr int kTeam = TEAM, kTeams = kWarps / kTeam;  // warps of a team, which takes a whole slot
constexpr int kPairs = kWarps / 2;                    // of warps, which take a whole slot of keys and values
constexpr int kCopiers = 4, kThreads = kMultiplying + 32 * kCopiers;  // warps, each of which fills whole slots
constexpr int kUnderWay = UNDER_WAY;  // slots; with more, what programs tell each other would queue behind copies
constexpr int kValueBytes = FLOAT8 ? 1 : 2;
constexpr int kGroup = HEADS / KEY_HEADS, kQueries = HEADS * HEAD_DIM, kMade = (HEADS + 2 * KEY_HEADS) * HEAD_DIM;
constexpr int kLines = 8, kGap = FLOAT8 ? 64 : 0;      // rows of a weight in a slot, and bytes between them
constexpr int kPiece = 64, kSide = 128;                // bytes of a row that a quarter of a warp reads; of a block's scale
constexpr int kSpan = FLOAT8 ? kSide : kPiece;         // bytes; a product is of two spans of each row
constexpr int kMostChunk = 2 * CHUNK, kWhole = 512;    // bytes of a row in a slot
constexpr int kTile = 16;                              // positions that are attended to at once
constexpr int kPositions = 32;                       // of keys and values in a slot
constexpr int kHeadBytes = 2 * HEAD_DIM, kHeadGap = 16, kHeadRow = kHeadBytes + kHeadGap;
constexpr int kScaleBytes = FLOAT8 ? 2 * 4 * kMostChunk / kSide : 0;
constexpr int kRowsBytes = kLines * (CHUNK + kGap), kHeadsBytes = 2 * kPositions * kHeadRow;
constexpr int kSlot = (kRowsBytes > kHeadsBytes ? kRowsBytes : kHeadsBytes) + kScaleBytes;
constexpr int kPartGap = FLOAT8 ? 8 : 32;            // values between the parts of a row
constexpr float kLowest = -1e30f;

// A barrier tells a round of the ring from the next one only. When a team waits for its next slot, that of the round before
// must be full; so must that of a pair of warps. While a copier waits for earlier copies, no slot may be filled twice.
static_assert(kUnderWay + kPairs <= STAGES, "the copies under way, and the slots of teams or pairs, are of one round");
static_assert(3 * kUnderWay - 2 < STAGES, "the copies under way, and those that a copier waits for, are of one round");
static_assert(kCopiers % kTeams == 0, "the order of the copiers is also that of the teams");
static_assert(kTeams <= kPairs, "a team is at least a pair");
static_assert(kGroup <= 8, "a product has columns for 8 queries");

static __device__ constexpr int most_rows(int rows) { return (rows + PROGRAMS - 1) / PROGRAMS; }
static __device__ constexpr int whole_tiles(int rows) { return (rows + kTile - 1) / kTile * kTile; }
static __device__ constexpr int larger(int a, int b) { return a > b ? a : b; }

struct Step {
  const u16* x;
  u16* y;
  u32 *qkv, *attended, *middle, *inner, *out;  // rows of words; `middle` is the sum between a layer's two norms
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

static __device__ __forceinline__ float low_of(u32 pair) { return as_float(pair << 16); }
static __device__ __forceinline__ float high_of(u32 pair) { return as_float(pair & 0xffff0000u); }

static __device__ __forceinline__ void widen(uint2 from, float* to) {
  to[0] = low_of(from.x), to[1] = high_of(from.x), to[2] = low_of(from.y), to[3] = high_of(from.y);
}

static __device__ __forceinline__ float wide(u16 value) { return as_float(static_cast<u32>(value) << 16); }

// a wait for other programs, which ends the kernel with an error once it has lasted too long
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

// Wait for the program's own copies or warps. There is no limit: if they stayed out, other programs would wait for this one
// too long, except in the last product.
static __device__ __forceinline__ void wait_for(u32 barrier, int turn) {
  while (!phase_ended(barrier, turn)) {
  }
}

static __device__ __forceinline__ void sync_multiplying() { named_barrier(kMultiplying); }

// a slot's barrier, and the turn that ends once the slot is full
struct Full {
  u32 barrier;
  int turn;
};

// the slots, as seen by one warp
struct Ring {
  u32 memory, barriers;
  int slot = 0, turn = 0;
  int order = 0;  // the copier whose slot is next; it also tells the team

  __device__ __forceinline__ u32 full() const { return barriers + 16 * slot; }
  __device__ __forceinline__ u32 empty() const { return barriers + 16 * slot + 8; }
  __device__ __forceinline__ u32 place() const { return memory + slot * kSlot; }
  __device__ __forceinline__ void next() { skip(1); }
  // at most STAGES slots
  __device__ __forceinline__ void skip(int slots) {
    slot += slots;
    if (slot >= STAGES) slot -= STAGES, turn ^= 1;
  }

  // return the barrier and the turn of a slot that is full before this one is copied
  __device__ __forceinline__ Full before(int slots) const {
    const bool around = slot < slots;
    return {barriers + 16 * (slot - slots + (around ? STAGES : 0)), around ? turn ^ 1 : turn};
  }
};

// A program's rows of a weight, in tiles of `lines` rows, of which the later ones may have one less. A tile is in `chunks`
// slots, one after the other.
struct alignas(16) Rows {
  int first, count, full;  // `full` tiles have all lines
  int lines, chunk, chunks;  // a slot has `chunk` bytes of each row
  int slots, beyond, turns;  // slots in all, those beyond whole rounds of the ring, and whether it turns

  __device__ __forceinline__ int row_at(int tile) const { return tile * (lines - 1) + min(tile, full); }
  __device__ __forceinline__ int lines_at(int tile) const { return lines - (tile >= full); }
};

template <int ROWS, int WIDTH>
static __device__ __forceinline__ Rows rows_of() {
  constexpr int kMost = most_rows(ROWS), kTiles = (kMost + kLines - 1) / kLines, kEach = (kMost + kTiles - 1) / kTiles;
  constexpr int kRoom = (kRowsBytes / kEach - kGap) / kWhole * kWhole, kChunk = kRoom < kMostChunk ? kRoom : kMostChunk;
  constexpr int kChunks = (WIDTH * kValueBytes + kChunk - 1) / kChunk;
  const int first = static_cast<long long>(ROWS) * blockIdx.x / PROGRAMS;
  const int count = static_cast<int>(static_cast<long long>(ROWS) * (blockIdx.x + 1) / PROGRAMS) - first;
  constexpr int kSlots = kTiles * kChunks;
  return {first,   count,  count - kTiles * (kEach - 1), kEach, kChunk, kChunks,
          kSlots, kSlots % STAGES, kSlots / STAGES % 2};
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

// The slots of a weight of one of EVERY teams or copiers. They are found before they are needed.
template <int EVERY>
struct Turns {
  Ring ring;
  int tile = 0, at, left;  // the next slot: its tile, its place in the rows, and the slots from there on

  // steps `all` to the next weight
  __device__ __forceinline__ Turns(Ring& all, const Rows& rows, int which) : ring(all) {
    at = (which + kCopiers - all.order) % EVERY, left = rows.slots - at;
    ring.skip(at);
#pragma unroll
    for (int i = 1; i < EVERY; i++)
      if (at >= rows.chunks) tile++, at -= rows.chunks;
    all.skip(rows.beyond);
    all.turn ^= rows.turns;
    all.order = (all.order + rows.slots) % kCopiers;
  }

  __device__ __forceinline__ void next(const Rows& rows) {
    ring.skip(EVERY);
    left -= EVERY, at += EVERY;
#pragma unroll
    for (int i = 0; i < EVERY; i++)
      if (at >= rows.chunks) tile++, at -= rows.chunks;
  }
};

// The warps that copy. Each prepares its next slot while the others' are copied, so that a copy begins as soon as an
// earlier one has ended. A slot is copied once those before the last kUnderWay are full: if each waits for as many, all are.

// Wait until the slots that come before by kUnderWay are full.
static __device__ __forceinline__ void await_copies(const Ring& ring) {
#pragma unroll 1
  for (int i = 2 * kUnderWay - 1; i >= kUnderWay; i--) {
    const Full full = ring.before(i);
    wait_for(full.barrier, full.turn);
  }
}

// a program's part of a weight; from a row to the next one are `stride` bytes
struct Weight {
  const char* first;
  const float* scales;
  Rows rows;
  int width, stride;

  __device__ __forceinline__ int chunk_bytes(const Turns<kCopiers>& turns) const {
    return min(rows.chunk, width * kValueBytes - turns.at * rows.chunk);
  }
  __device__ __forceinline__ const char* row(int row) const { return first + static_cast<long long>(row) * stride; }
};

static __device__ __forceinline__ void copy_rows(Ring& all, const Weight& weight, int copier, int lane) {
  const Rows& rows = weight.rows;
  for (Turns<kCopiers> own(all, rows, copier); own.left > 0; own.next(rows)) {
    const int count = rows.lines_at(own.tile), first = rows.first + rows.row_at(own.tile), at = own.at * rows.chunk;
    const int bytes = weight.chunk_bytes(own);
    const int block = first / kSide, blocks = FLOAT8 ? (first + count - 1) / kSide - block + 1 : 0;
    const int scale_bytes = 4 * bytes / kSide;
    const char* source = weight.row(first + lane) + at;
    const u32 full = own.ring.full(), place = own.ring.place();
    await_copies(own.ring);
    wait_for(own.ring.empty(), own.ring.turn ^ 1);
    if (lane == 0) expect(full, count * bytes + blocks * scale_bytes);
    __syncwarp();
    if (lane < count) copy(place + lane * (rows.chunk + kGap), source, bytes, full);
    if (31 - lane < blocks) {
      const int which = 31 - lane;
      copy(place + kSlot - kScaleBytes + which * (kScaleBytes / 2),
           reinterpret_cast<const char*>(weight.scales + (block + which) * (weight.width / kSide) + at / kSide),
           scale_bytes, full);
    }
  }
}

static __device__ __forceinline__ void copy_heads(Ring& all, const Step& step, int layer, const Range& range, int copier,
                                                   int lane) {
  constexpr int kQuads = kHeadBytes / 16;
  const char* keys = step.pool + layer * step.layer_bytes + range.head * kHeadBytes;
  const int slots = (range.last - range.first + kPositions - 1) / kPositions;
  for (int i = 0; i < slots; i++, all.next(), all.order = (all.order + 1) % kCopiers) {
    if (all.order != copier) continue;
    const int start = range.first + i * kPositions, count = min(kPositions, range.last - start);
    await_copies(all);
    wait_for(all.empty(), all.turn ^ 1);
    // heads are too small for the copy engine
#pragma unroll 2
    for (int quad = lane; quad < count * kQuads; quad += 32) {
      const int line = quad / kQuads, position = start + line, at = quad % kQuads * 16;
      const long long page = __ldg(step.table + position / PAGE);
      const char* source = keys + (page * PAGE + position % PAGE) * (KEY_HEADS * kHeadBytes) + at;
      const u32 key = all.place() + line * kHeadRow + at;
      copy_quad(key, source);
      copy_quad(key + kPositions * kHeadRow, source + step.values_offset);
    }
    arrive_behind_quads(all.full());
    __syncwarp();
    if (lane == 0) arrive(all.full());
  }
}
