// Full attention among the patches of a crop, on Hopper's warpgroup products (sm_90a), for heads of 72 channels.
//
// The host defines PATCHES, HEADS, KEYS, WARPGROUPS, PROGRAMS, STAGES, SHARED and OUT8. A program takes one head of one crop
// and 64 query rows a warpgroup; the copy engine brings blocks of KEYS keys and values some stages ahead. A tile has
// 64 channels of each row in 128 bytes, swizzled as products read them, and the other 8 in a narrow tile of 16 bytes
// a row. With OUT8 the output is e4m3, each value times a factor. With padding to 128 channels, as in libraries, nearly half of the products would be wasted. The map describes
// a tensor (crops, queries, keys and values of HEADS, PATCHES, 72 channels).

constexpr int kWideChannels = 64;
constexpr int kRowBytes = 2 * 72;
constexpr int kPieces8 = 72 / 8;  // of a row of e4m3
constexpr int kBlocks = (PATCHES + KEYS - 1) / KEYS;
constexpr int kInside = PATCHES - (kBlocks - 1) * KEYS;  // keys of the last block
constexpr int kLast = (kInside + 15) / 16 * 16;          // the same with padding
static_assert(kBlocks > 1, "the last block follows another");
static_assert(kRows % KEYS == 0 && STAGES > 1, "queries come in boxes of KEYS rows, and a block while another is read");

// in shared memory: first the wide tiles, which must lie at multiples of 1,024 bytes
constexpr int kWideQueries = 0;
constexpr int kWideKeys = kWideQueries + kRows * kWide;
constexpr int kWideValues = kWideKeys + STAGES * KEYS * kWide;
constexpr int kNarrowQueries = kWideValues + STAGES * KEYS * kWide;
constexpr int kNarrowZeros = kNarrowQueries + kRows * kNarrow;
constexpr int kNarrowKeys = kNarrowZeros + kRows * kNarrow;
constexpr int kNarrowValues = kNarrowKeys + STAGES * KEYS * kNarrow;
constexpr int kFull = kNarrowValues + STAGES * KEYS * kNarrow;  // a barrier of 8 bytes for each stage
constexpr int kFree = kFull + 8 * STAGES;
constexpr int kQueriesHere = kFree + 8 * STAGES;
static_assert(kQueriesHere + 8 == SHARED, "the host counts as this does");

// start the scores of COUNT keys
template <int COUNT>
static __device__ __forceinline__ void start_scores(State& state, const Queries& queries, u32 memory, int stage,
                                                    int warpgroup) {
  const u32 wide_keys = memory + kWideKeys + stage * KEYS * kWide;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    scores<COUNT>(state.score, queries.step[step], wide_at(wide_keys + 32 * step), step > 0);
  }
  // this step has no second half: there the queries are zero, and the keys are the first half's
  scores<COUNT>(state.score, narrow_at(memory + kNarrowQueries + warpgroup * 64 * kNarrow, kRows * kNarrow),
                narrow_at(memory + kNarrowKeys + stage * KEYS * kNarrow, 0), 1);
  products_end();
}

// start adding the values of COUNT keys by their weights
template <int COUNT>
static __device__ __forceinline__ void start_mixing(State& state, u32 memory, int stage) {
  const u32 wide_values = memory + kWideValues + stage * KEYS * kWide;
  const u32 narrow_values = memory + kNarrowValues + stage * KEYS * kNarrow;
#pragma unroll
  for (int step = 0; step < COUNT / 16; ++step) {
    mix<64>(state.wide, state.weight + 4 * step, wide_at(wide_values + step * 16 * kWide));
    mix<8>(state.narrow, state.weight + 4 * step, narrow_at(narrow_values + step * 16 * kNarrow, 8 * kNarrow));
  }
  products_end();
}

// mask the last block's padding
static __device__ __forceinline__ void mask(State& state) {
  const int column = 2 * (threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < kLast / 2; ++i) {
    if (i / 4 * 8 + 8 > kInside && i / 4 * 8 + column + i % 2 >= kInside) state.score[i] = kLowest;
  }
}

// one program: its head and crop, its shared memory, and the calling thread's place in it
struct Program {
  const Map& wide_map;
  const Map& narrow_map;
  u32 memory;
  int head;
  int crop;
  int warpgroup;
  bool leads_warp;
  bool brings;  // true for the one thread that copies for all

  __device__ __forceinline__ u32 full(int block) const { return memory + kFull + 8 * (block % STAGES); }
  __device__ __forceinline__ u32 free(int block) const { return memory + kFree + 8 * (block % STAGES); }

  __device__ __forceinline__ void bring_queries(int first, u32 barrier) const {
    expect(barrier, kRows * kRowBytes);
#pragma unroll
    for (int row = 0; row < kRows; row += KEYS) {
      bring(memory + kWideQueries + row * kWide, wide_map, 0, first + row, head, crop, barrier);
      bring(memory + kNarrowQueries + row * kNarrow, narrow_map, kWideChannels, first + row, head, crop, barrier);
    }
  }

  __device__ __forceinline__ void bring_block(int block) const {
    const int row = block % STAGES * KEYS, first = block * KEYS, keys = HEADS + head, values = 2 * HEADS + head;
    expect(full(block), 2 * KEYS * kRowBytes);
    bring(memory + kWideKeys + row * kWide, wide_map, 0, first, keys, crop, full(block));
    bring(memory + kNarrowKeys + row * kNarrow, narrow_map, kWideChannels, first, keys, crop, full(block));
    bring(memory + kWideValues + row * kWide, wide_map, 0, first, values, crop, full(block));
    bring(memory + kNarrowValues + row * kNarrow, narrow_map, kWideChannels, first, values, crop, full(block));
  }

  // release a block for this warp, and copy the next one into its place once all warps have released it
  __device__ __forceinline__ void leave(int block) const {
    if (leads_warp) arrive(free(block));
    if (brings && block + STAGES < kBlocks) {
      await(free(block), block / STAGES);
      bring_block(block + STAGES);
    }
    __syncwarp();
  }
};

// Take a block of COUNT keys whose scores are ready, while the values of the previous block are still being mixed:
// their end is awaited only when the weights are known. Then the next scores start, and behind them this block's mixing.
template <int COUNT, int NEXT>
static __device__ __forceinline__ void take(State& state, const Queries& queries, const Program& program, int block,
                                            float scale) {
  const bool higher = weigh<COUNT>(state, scale);
  await_products<0>();
  if (block > 0) program.leave(block - 1);
  if (higher) decay_mixed(state);
  pack<COUNT>(state);
  await(program.full(block + 1), (block + 1) / STAGES);
  products_begin();
  start_scores<NEXT>(state, queries, program.memory, (block + 1) % STAGES, program.warpgroup);
  start_mixing<COUNT>(state, program.memory, block % STAGES);
  await_products<1>();
}

static __device__ __forceinline__ void take_last(State& state, const Program& program, float scale) {
  mask(state);
  const bool higher = weigh<kLast>(state, scale);
  await_products<0>();
  if (higher) decay_mixed(state);
  pack<kLast>(state);
  products_begin();
  start_mixing<kLast>(state, program.memory, (kBlocks - 1) % STAGES);
  await_products<0>();
}

// Write the first `count` of a warp's 16 rows in e4m3, through the warp's own tile, in pieces of 8 bytes.
static __device__ __forceinline__ void write_e4m3(const State& state, char* tile, char* out, int out_stride, int count,
                                                  float factor) {
  const int lane = threadIdx.x % 32;
  const float share[2] = {factor / quad_sum(state.total[0]), factor / quad_sum(state.total[1])};
#pragma unroll
  for (int i = 0; i < 36; i += 2) {
    const int below = i / 2 % 2;
    const float* pair = i < 32 ? state.wide + i : state.narrow + i - 32;
    unsigned short packed;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
        : "=h"(packed)
        : "f"(pair[1] * share[below]), "f"(pair[0] * share[below]));
    *reinterpret_cast<unsigned short*>(tile + (lane / 4 + 8 * below) * kWide + i / 4 * 8 + lane % 4 * 2) = packed;
  }
  __syncwarp();
#pragma unroll
  for (int i = lane; i < 16 * kPieces8; i += 32) {
    const int row = i / kPieces8, piece = i % kPieces8;
    if (row < count) {
      *reinterpret_cast<uint2*>(out + static_cast<long long>(row) * out_stride + piece * 8) =
          *reinterpret_cast<const uint2*>(tile + row * kWide + piece * 8);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, PROGRAMS)
attend(const __grid_constant__ Map wide_map, const __grid_constant__ Map narrow_map, char* out, float scale,
       float factor) {
  extern __shared__ __align__(1024) char memory[];
  const int warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = blockIdx.x * kRows, head = blockIdx.y, crop = blockIdx.z;
  const Program program = {wide_map, narrow_map, shared_address(memory), head, crop, warpgroup,
                           lane == 0, threadIdx.x == 0};
  const u32 queries_here = program.memory + kQueriesHere;

  if (program.brings) {
#pragma unroll
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_of(program.full(stage), 1);
      barrier_of(program.free(stage), kThreads / 32);
    }
    barrier_of(queries_here, 1);
  }
  for (int row = threadIdx.x; row < kRows; row += kThreads) {
    *reinterpret_cast<uint4*>(memory + kNarrowZeros + row * kNarrow) = make_uint4(0, 0, 0, 0);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // copies and products use another path to this memory
  __syncthreads();
  if (program.brings) {
    program.bring_queries(first, queries_here);
#pragma unroll
    for (int block = 0; block < STAGES && block < kBlocks; ++block) program.bring_block(block);
  }

  State state;
  begin(state);
  await(queries_here, 0);
  Queries queries;
  read(queries, program.memory + kWideQueries);
  await(program.full(0), 0);
  products_begin();
  start_scores<KEYS>(state, queries, program.memory, 0, warpgroup);
  await_products<0>();
#pragma unroll 1
  for (int block = 0; block < kBlocks - 2; ++block) take<KEYS, KEYS>(state, queries, program, block, scale);
  take<KEYS, kLast>(state, queries, program, kBlocks - 2, scale);
  take_last(state, program, scale);

  asm volatile("bar.sync %0, 128;" ::"r"(1 + warpgroup) : "memory");  // its queries are no longer read
  const int row = warp * 16, patch = first + row;
  const long long place = (static_cast<long long>(crop) * PATCHES + patch) * HEADS + head;
  if (OUT8) {
    write_e4m3(state, memory + kWideQueries + row * kWide, out + place * 72, HEADS * 72, PATCHES - patch, factor);
  } else {
    write<kRowBytes / 16>(state, memory + kWideQueries + row * kWide, memory + kNarrowQueries + row * kNarrow,
                          out + place * kRowBytes, HEADS * kRowBytes, PATCHES - patch);
  }
}
