// Full attention among the patches of a crop, on Hopper's warpgroup products (sm_90a), for heads of 72 channels.
//
// The host defines PATCHES, HEADS, KEYS, WARPGROUPS, PROGRAMS, STAGES and HALF, and the functions `scores<N>` and
// `mix<N>`: one product of 64 rows. A program takes one head of one crop and 64 query rows a warpgroup; blocks of KEYS
// keys and values come by the copy engine (TMA), so many stages ahead. A tile has 64 channels of each row in 128 bytes,
// swizzled as the products read them, and the other 8 in a narrow tile of 16 bytes a row: padded to 128 channels, as
// libraries have it, nearly half of the products would be in vain.

struct alignas(64) Map {
  char bytes[128];  // CUtensorMap: (72 channels, PATCHES, q, k, v of HEADS, crops)
};

constexpr int kRowBytes = 2 * 72;
constexpr int kRows = 64 * WARPGROUPS;
constexpr int kThreads = 128 * WARPGROUPS;
constexpr int kBlocks = (PATCHES + KEYS - 1) / KEYS;
constexpr int kInside = PATCHES - (kBlocks - 1) * KEYS;  // keys of the last block
constexpr int kLast = (kInside + 15) / 16 * 16;          // the same with padding
constexpr int kWide = 128, kNarrow = 16;                 // bytes of a row in its two tiles
constexpr float kLazy = 8.0f;  // of log2: how far a weight may exceed 1 before the sums are scaled down
static_assert(kBlocks > 1, "the last block follows another");

// in shared memory: first the wide tiles, for they must lie at multiples of 1,024 bytes
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

static __device__ __forceinline__ u32 shared_address(const void* pointer) {
  u64 address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(pointer));
  return static_cast<u32>(address);
}

// barriers in shared memory

static __device__ __forceinline__ void barrier_of(u32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

static __device__ __forceinline__ void expect(u32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ __forceinline__ void await(u32 barrier, int turn) {
  asm volatile(
      "{ .reg .pred there; again: mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1; @!there bra again; }" ::"r"(
          barrier),
      "r"(turn & 1)
      : "memory");
}

// bring a tile of 64 or 8 channels, from patch `first` on; what lies beyond the patches is zero
static __device__ __forceinline__ void bring(u32 to, const Map& map, int channel, int first, int head, int crop,
                                             u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&map), "r"(channel), "r"(first), "r"(head), "r"(crop), "r"(barrier)
      : "memory");
}

// where a product finds a tile; distances in bytes
static __device__ __forceinline__ u64 narrow_at(u32 address, u32 leading) {
  return static_cast<u64>((address & 0x3ffff) >> 4) | static_cast<u64>(leading >> 4) << 16 |
         static_cast<u64>(8 * kNarrow >> 4) << 32;
}

static __device__ __forceinline__ u64 wide_at(u32 address) {
  return static_cast<u64>((address & 0x3ffff) >> 4) | 1ull << 16 | static_cast<u64>(8 * kWide >> 4) << 32 | 1ull << 62;
}

static __device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

static __device__ __forceinline__ void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// wait until so many groups of products are left
template <int LEFT>
static __device__ __forceinline__ void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

static __device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

static __device__ __forceinline__ u32 halves(float low, float high) {
  u32 packed;
  asm("cvt.rn." HALF "x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

static __device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// A thread has two rows of its warpgroup's 64, r and r + 8, and of each group of eight columns two neighbours.
struct State {
  float score[KEYS / 2];
  u32 weight[KEYS / 4];
  float wide[32];
  float narrow[4];
  float peak[2];
  float total[2];
  float decay[2];
};

// start the scores of COUNT keys
template <int COUNT>
static __device__ __forceinline__ void start_scores(State& state, u32 memory, int stage, int warpgroup) {
  const u32 wide_queries = memory + kWideQueries + warpgroup * 64 * kWide;
  const u32 wide_keys = memory + kWideKeys + stage * KEYS * kWide;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    scores<COUNT>(state.score, wide_at(wide_queries + 32 * step), wide_at(wide_keys + 32 * step), step > 0);
  }
  // of this step the second half is missing: there the queries are zero, and the keys are the first half's
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

// turn scores into weights; says whether what is mixed must decay
template <int COUNT, bool MASKED>
static __device__ __forceinline__ bool weigh(State& state, float scale) {
  if (MASKED) {
    const int column = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) {
      if (i / 4 * 8 + 8 > kInside && i / 4 * 8 + column + i % 2 >= kInside) state.score[i] = -1e30f;
    }
  }
  float peak[2] = {-1e30f, -1e30f};
#pragma unroll
  for (int i = 0; i < COUNT / 2; ++i) peak[i / 2 % 2] = fmaxf(peak[i / 2 % 2], state.score[i]);
#pragma unroll
  for (int row = 0; row < 2; ++row) peak[row] = quad_max(peak[row]) * scale;
  const bool higher =
      __any_sync(0xffffffffu, peak[0] > state.peak[0] + kLazy || peak[1] > state.peak[1] + kLazy);
  if (higher) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      peak[row] = fmaxf(state.peak[row], peak[row]);
      state.decay[row] = exp2_of(state.peak[row] - peak[row]);
      state.peak[row] = peak[row];
      state.total[row] *= state.decay[row];
    }
  }
#pragma unroll
  for (int i = 0; i < COUNT / 2; ++i) {
    const int row = i / 2 % 2;
    state.score[i] = exp2_of(fmaf(state.score[i], scale, -state.peak[row]));
    state.total[row] += state.score[i];
  }
  return higher;
}

static __device__ __forceinline__ void decay_mixed(State& state) {
#pragma unroll
  for (int i = 0; i < 32; ++i) state.wide[i] *= state.decay[i / 2 % 2];
#pragma unroll
  for (int i = 0; i < 4; ++i) state.narrow[i] *= state.decay[i / 2];
}

template <int COUNT>
static __device__ __forceinline__ void pack(State& state) {
#pragma unroll
  for (int i = 0; i < COUNT / 2; i += 2) state.weight[i / 2] = halves(state.score[i], state.score[i + 1]);
}

static __device__ __forceinline__ int swizzled(int row, int piece) { return row * kWide + (piece ^ row % 8) * 16; }

extern "C" __global__ void __launch_bounds__(kThreads, PROGRAMS)
attend(const __grid_constant__ Map wide_map, const __grid_constant__ Map narrow_map, char* o, float scale) {
  extern __shared__ __align__(1024) char memory[];
  const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int first = blockIdx.x * kRows, head = blockIdx.y, crop = blockIdx.z;
  const u32 shared = shared_address(memory);
  const bool brings = threadIdx.x == 0;

  const u32 full = shared + kFull, free = shared + kFree, queries_here = shared + kQueriesHere;
  if (brings) {
#pragma unroll
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_of(full + 8 * stage, 1);
      barrier_of(free + 8 * stage, kThreads / 32);
    }
    barrier_of(queries_here, 1);
  }
  for (int row = threadIdx.x; row < kRows; row += kThreads) {
    *reinterpret_cast<uint4*>(memory + kNarrowZeros + row * kNarrow) = make_uint4(0, 0, 0, 0);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // copies and products use another path to this memory
  __syncthreads();

#define BRING_BLOCK(block)                                                                                          \
  {                                                                                                                 \
    const int to = (block) % STAGES;                                                                                \
    expect(full + 8 * to, 2 * KEYS * kRowBytes);                                                                    \
    bring(shared + kWideKeys + to * KEYS * kWide, wide_map, 0, (block)*KEYS, HEADS + head, crop, full + 8 * to);    \
    bring(shared + kNarrowKeys + to * KEYS * kNarrow, narrow_map, 64, (block)*KEYS, HEADS + head, crop,             \
          full + 8 * to);                                                                                           \
    bring(shared + kWideValues + to * KEYS * kWide, wide_map, 0, (block)*KEYS, 2 * HEADS + head, crop,              \
          full + 8 * to);                                                                                           \
    bring(shared + kNarrowValues + to * KEYS * kNarrow, narrow_map, 64, (block)*KEYS, 2 * HEADS + head, crop,       \
          full + 8 * to);                                                                                           \
  }

  if (brings) {
    expect(queries_here, kRows * kRowBytes);
#pragma unroll
    for (int row = 0; row < kRows; row += KEYS) {
      bring(shared + kWideQueries + row * kWide, wide_map, 0, first + row, head, crop, queries_here);
      bring(shared + kNarrowQueries + row * kNarrow, narrow_map, 64, first + row, head, crop, queries_here);
    }
#pragma unroll
    for (int block = 0; block < STAGES && block < kBlocks; ++block) BRING_BLOCK(block);
  }

  State state;
#pragma unroll
  for (int i = 0; i < 32; ++i) state.wide[i] = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) state.narrow[i] = 0.0f;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    state.peak[row] = -1e30f;
    state.total[row] = 0.0f;
    state.decay[row] = 0.0f;
  }

  await(queries_here, 0);
  await(full, 0);
  products_begin();
  start_scores<KEYS>(state, shared, 0, warpgroup);
  await_products<0>();

  // The scores of `block` are there, and the values of the one before are being mixed. These are awaited only when the
  // weights are known; then the next scores are started, and behind them the mixing of this block.
#define STEP(COUNT, NEXT)                                                            \
  {                                                                                  \
    const bool higher = weigh<COUNT, false>(state, scale);                           \
    await_products<0>();                                                             \
    if (block > 0) {                                                                 \
      if (lane == 0) arrive(free + 8 * ((block - 1) % STAGES));                      \
      if (brings && block + STAGES - 1 < kBlocks) {                                  \
        await(free + 8 * ((block - 1) % STAGES), (block - 1) / STAGES);              \
        BRING_BLOCK(block + STAGES - 1);                                             \
      }                                                                              \
      __syncwarp();                                                                  \
    }                                                                                \
    if (higher) decay_mixed(state);                                                  \
    pack<COUNT>(state);                                                              \
    await(full + 8 * ((block + 1) % STAGES), (block + 1) / STAGES);                  \
    products_begin();                                                                \
    start_scores<NEXT>(state, shared, (block + 1) % STAGES, warpgroup);              \
    start_mixing<COUNT>(state, shared, block % STAGES);                              \
    await_products<1>();                                                             \
  }

#pragma unroll 1
  for (int block = 0; block < kBlocks - 2; ++block) STEP(KEYS, KEYS);
  {
    constexpr int block = kBlocks - 2;
    STEP(KEYS, kLast);
  }
  const bool higher = weigh<kLast, kLast != kInside>(state, scale);
  await_products<0>();
  if (higher) decay_mixed(state);
  pack<kLast>(state);
  products_begin();
  start_mixing<kLast>(state, shared, (kBlocks - 1) % STAGES);
  await_products<0>();

  // through the warp's own rows of the queries' tile, so that rows leave in whole pieces
  asm volatile("bar.sync %0, 128;" ::"r"(1 + warpgroup) : "memory");  // nobody reads the queries any more
  const int row = warpgroup * 64 + warp * 16;
  char* wide = memory + kWideQueries + row * kWide;
  char* narrow = memory + kNarrowQueries + row * kNarrow;
  const float share[2] = {1.0f / quad_sum(state.total[0]), 1.0f / quad_sum(state.total[1])};
#pragma unroll
  for (int i = 0; i < 32; i += 2) {
    const int below = i / 2 % 2;
    *reinterpret_cast<u32*>(wide + swizzled(lane / 4 + 8 * below, i / 4) + lane % 4 * 4) =
        halves(state.wide[i] * share[below], state.wide[i + 1] * share[below]);
  }
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    *reinterpret_cast<u32*>(narrow + (lane / 4 + 8 * below) * kNarrow + lane % 4 * 4) =
        halves(state.narrow[2 * below] * share[below], state.narrow[2 * below + 1] * share[below]);
  }
  __syncwarp();
  o += (static_cast<long long>(crop) * PATCHES * HEADS + head) * kRowBytes;
#pragma unroll
  for (int i = lane; i < 16 * 9; i += 32) {
    const int below = i / 9, piece = i % 9, patch = first + row + below;
    if (patch < PATCHES) {
      const char* made = piece < 8 ? wide + swizzled(below, piece) : narrow + below * kNarrow;
      *reinterpret_cast<uint4*>(o + static_cast<long long>(patch) * HEADS * kRowBytes + piece * 16) =
          *reinterpret_cast<const uint4*>(made);
    }
  }
}
