// Attention of many query rows a sequence over pages of keys and values, on Hopper's warpgroup products (sm_90a), for
// heads of 64 channels.
//
// The host defines PAGE, GROUP, KEYS, WARPGROUPS, PROGRAMS, STAGES and SHARED. A program takes one head of 64 query
// rows a warpgroup of one sequence, and looks up the sequence itself. GROUP query heads share a key head. Row i sees the
// positions up to its limit, which is i, or the prefix's last position if i lies in the prefix; limits never fall from
// row to row. The maps describe tensors (1, heads, rows, channels) and (key pages and then as many value pages, key heads,
// PAGE, channels).

constexpr int kPagesOfBlock = KEYS / PAGE;
static_assert(KEYS % PAGE == 0 && PAGE % 8 == 0, "a block is of whole pages, and a page of whole swizzles");
static_assert(kRows % 64 == 0 && STAGES > 1, "queries come in tiles of 64 rows, and a block while another is read");

// in shared memory: first the tiles, which must lie at multiples of 1,024 bytes; last the table, whose length varies
constexpr int kQueries = 0;
constexpr int kKeys = kQueries + kRows * kWide;
constexpr int kValues = kKeys + STAGES * KEYS * kWide;
constexpr int kFull = kValues + STAGES * KEYS * kWide;  // a barrier of 8 bytes for each stage
constexpr int kFree = kFull + 8 * STAGES;
constexpr int kQueriesHere = kFree + 8 * STAGES;
constexpr int kTable = kQueriesHere + 8;
static_assert(kTable == SHARED, "the host counts as this does");

struct Tile {
  int sequence;
  int index;
};

// A tile's sequence, and its number within it. Tiles are numbered across all sequences; one without rows has none.
static __device__ __forceinline__ Tile whose(int tile, const int* starts, int sequences) {
  const int lane = threadIdx.x % 32;
  int seen = 0;
  for (int first = 0; first < sequences; first += 32) {
    const int sequence = first + lane;
    int count = 0;
    if (sequence < sequences) count = (starts[sequence + 1] - starts[sequence] + kRows - 1) / kRows;
    int sum = count;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane >= distance) sum += other;
    }
    const u32 beyond = __ballot_sync(0xffffffffu, seen + sum > tile);
    if (beyond) {
      const int owner = __ffs(beyond) - 1;
      return {first + owner, tile - seen - __shfl_sync(0xffffffffu, sum - count, owner)};
    }
    seen += __shfl_sync(0xffffffffu, sum, 31);
  }
  return {sequences, 0};
}

static __device__ __forceinline__ int limit_of(int row, int prefix, int context) {
  return min(row < prefix ? prefix - 1 : row, context - 1);
}

// one program: its shared memory, its inputs, and the calling thread's place in it
struct Program {
  const Map& pool_map;
  u32 memory;
  char* tiles;       // the same memory
  const int* table;  // the sequence's pages, in shared memory
  int value_pages;   // the number of the first page of values
  int key_head;
  int context;
  int blocks;    // seen by any row, at least in part
  int unmasked;  // of them, seen by all rows in full
  int limit[2];  // of the thread's rows
  int warpgroup;
  bool leads_warp;
  bool brings;  // true for the one thread that copies for all

  __device__ __forceinline__ u32 full(int block) const { return memory + kFull + 8 * (block % STAGES); }
  __device__ __forceinline__ u32 free(int block) const { return memory + kFree + 8 * (block % STAGES); }

  __device__ __forceinline__ void bring_block(int block) const {
    const u32 row = block % STAGES * KEYS;
    expect(full(block), 2 * KEYS * kWide);
#pragma unroll
    for (int i = 0; i < kPagesOfBlock; ++i) {
      // the last page replaces those beyond it
      const int page = table[min(block * kPagesOfBlock + i, (context - 1) / PAGE)];
      bring(memory + kKeys + (row + i * PAGE) * kWide, pool_map, 0, 0, key_head, page, full(block));
      bring(memory + kValues + (row + i * PAGE) * kWide, pool_map, 0, 0, key_head, value_pages + page, full(block));
    }
  }

  // release a block for this warp, and copy the next one into its place once all warps have released it
  __device__ __forceinline__ void leave(int block) const {
    if (leads_warp) arrive(free(block));
    if (brings && block + STAGES < blocks) {
      await(free(block), block / STAGES);
      bring_block(block + STAGES);
    }
    __syncwarp();
  }

  // Slots beyond the context may hold anything, even NaN, which a weight of zero does not cancel: their values become
  // zero. Each warpgroup does so for itself.
  __device__ __forceinline__ void clear_beyond(int block) const {
    const int first = context - block * KEYS;
    if (first >= KEYS) return;
    char* rows = tiles + kValues + block % STAGES * KEYS * kWide;
    for (int i = first * 8 + threadIdx.x % 128; i < KEYS * 8; i += 128) {
      *reinterpret_cast<uint4*>(rows + i * 16) = make_uint4(0, 0, 0, 0);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // products use another path to this memory
    asm volatile("bar.sync %0, 128;" ::"r"(1 + warpgroup) : "memory");
  }
};

static __device__ __forceinline__ void start_scores(State& state, const Queries& queries, const Program& program,
                                                    int block) {
  const u32 keys = program.memory + kKeys + block % STAGES * KEYS * kWide;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    scores<KEYS>(state.score, queries.step[step], wide_at(keys + 32 * step), step > 0);
  }
  products_end();
}

static __device__ __forceinline__ void start_mixing(State& state, const Program& program, int block) {
  const u32 values = program.memory + kValues + block % STAGES * KEYS * kWide;
#pragma unroll
  for (int step = 0; step < KEYS / 16; ++step) {
    mix<64>(state.wide, state.weight + 4 * step, wide_at(values + step * 16 * kWide));
  }
  products_end();
}

// mask the keys of a block that a row does not see
static __device__ __forceinline__ void mask(State& state, const Program& program, int block) {
  const int first = block * KEYS + 2 * (threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < KEYS / 2; ++i) {
    if (first + i / 4 * 8 + i % 2 > program.limit[i / 2 % 2]) state.score[i] = kLowest;
  }
}

// Take a block whose scores are ready, while the values of the previous block are still being mixed: their end is
// awaited only when the weights are known.
static __device__ __forceinline__ void take(State& state, const Program& program, int block, float scale) {
  if (block >= program.unmasked) mask(state, program, block);
  const bool higher = weigh<KEYS>(state, scale);
  await_products<0>();
  if (block > 0) program.leave(block - 1);
  if (higher) decay_mixed(state);
  pack<KEYS>(state);
}

extern "C" __global__ void __launch_bounds__(kThreads, PROGRAMS)
attend(const __grid_constant__ Map query_map, const __grid_constant__ Map pool_map, const int* table, const int* starts,
       const int* contexts, const int* prefixes, char* out, int sequences, int table_stride, int out_stride,
       int value_pages, float scale) {
  extern __shared__ __align__(1024) char memory[];
  const Tile tile = whose(blockIdx.x, starts, sequences);
  if (tile.sequence == sequences) return;
  const int warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.y;
  const int start = starts[tile.sequence], count = starts[tile.sequence + 1] - start;
  const int context = contexts[tile.sequence], prefix = prefixes[tile.sequence];
  const int first = tile.index * kRows, row = first + warp * 16, before = context - count;

  const int last = limit_of(before + min(first + kRows, count) - 1, prefix, context);
  // rows of no sequence see nothing: their values must not decide when sums are scaled
  const bool whole = first + kRows <= count;
  const int mine = row + lane / 4;
  const int limits[2] = {mine < count ? limit_of(before + mine, prefix, context) : -1,
                         mine + 8 < count ? limit_of(before + mine + 8, prefix, context) : -1};
  const Program program = {pool_map,
                           shared_address(memory),
                           memory,
                           reinterpret_cast<const int*>(memory + kTable),
                           value_pages,
                           head / GROUP,
                           context,
                           last / KEYS + 1,
                           whole ? (limit_of(before + first, prefix, context) + 1) / KEYS : 0,
                           {limits[0], limits[1]},
                           warpgroup,
                           lane == 0,
                           threadIdx.x == 0};
  const u32 queries_here = program.memory + kQueriesHere;

  for (int i = threadIdx.x; i <= (context - 1) / PAGE; i += kThreads) {
    reinterpret_cast<int*>(memory + kTable)[i] = table[static_cast<long long>(tile.sequence) * table_stride + i];
  }
  if (program.brings) {
#pragma unroll
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_of(program.full(stage), 1);
      barrier_of(program.free(stage), kThreads / 32);
    }
    barrier_of(queries_here, 1);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the copy engine uses another path to this memory
  }
  __syncthreads();
  if (program.brings) {
    expect(queries_here, kRows * kWide);
#pragma unroll
    for (int i = 0; i < WARPGROUPS; ++i) {
      bring(program.memory + kQueries + i * 64 * kWide, query_map, 0, start + first + i * 64, head, 0, queries_here);
    }
    for (int block = 0; block < STAGES && block < program.blocks; ++block) program.bring_block(block);
  }

  State state;
  begin(state);
  await(queries_here, 0);
  Queries queries;
  read(queries, program.memory + kQueries);
  await(program.full(0), 0);
  products_begin();
  start_scores(state, queries, program, 0);
  await_products<0>();
#pragma unroll 1
  for (int block = 0; block < program.blocks - 1; ++block) {
    take(state, program, block, scale);
    await(program.full(block + 1), (block + 1) / STAGES);
    products_begin();
    start_scores(state, queries, program, block + 1);
    start_mixing(state, program, block);
    await_products<1>();
  }
  take(state, program, program.blocks - 1, scale);
  program.clear_beyond(program.blocks - 1);
  products_begin();
  start_mixing(state, program, program.blocks - 1);
  await_products<0>();

  if (row < count) {
    write<8>(state, memory + kQueries + warp * 16 * kWide, nullptr,
             out + static_cast<long long>(start + row) * out_stride + head * kWide, out_stride, count - row);
  }
}
