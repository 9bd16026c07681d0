// Products of at most BATCH rows with a large weight, in x's dtype or in float8 (e4m3) with a scale for each block of
// 128 x 128. A tile has 64 of the weight's rows; with gating, 8 gates, their ups, and so on. One warp copies 128 columns at
// a time, of the weight and of x, to a ring of stages. The warpgroups of a tile share these blocks, and their sums are added
// up at the end. Values in float8 are converted in registers.
//
// The programs of a tile share its columns in PARTS. Without WHOLE each stores its sums in float32. With it they are a
// cluster, which adds them up and stores the output in 16 bits.
//
// The host defines HALF and BFLOAT (x's dtype), BFLOAT_OUT, FLOAT8, COLUMNS (of the weight), BATCH (16, 32 or 64), TILES,
// SPLIT (warpgroups of a tile), STAGES, PARTS, GATED, WHOLE, and BIASED (a bias in x's dtype, only with WHOLE).

constexpr int kGroups = TILES * SPLIT, kThreads = 128 * kGroups + 32;
constexpr int kBlock = 128, kBlocks = COLUMNS / kBlock;
constexpr int kRowTiles = 2, kRowTile = BATCH * kWide;  // of x: tiles of 64 columns of a block
constexpr int kPieces = FLOAT8 ? 1 : 2, kPiece = 64 * kWide, kWeightTile = kPieces * kPiece;  // of a tile: columns of a row
constexpr int kStage = kRowTiles * kRowTile + TILES * kWeightTile;
constexpr int kSums = BATCH / 2;
constexpr float kTiny = 1e-25f;

// four float8 values, in two pairs of neighbours, as two pairs of 16-bit values
static __device__ __forceinline__ void convert(u32 first, u32 second, u32* to) {
#if BFLOAT
  asm("{ .reg .b16 a, b, c, d; .reg .b32 low, high; .reg .f32 e, f, g, h; .reg .b16 one, two; "
      "cvt.u16.u32 one, %2; cvt.u16.u32 two, %3; "
      "cvt.rn.f16x2.e4m3x2 low, one; cvt.rn.f16x2.e4m3x2 high, two; "
      "mov.b32 {a, b}, low; mov.b32 {c, d}, high; "
      "cvt.f32.f16 e, a; cvt.f32.f16 f, b; cvt.f32.f16 g, c; cvt.f32.f16 h, d; "
      "cvt.rn.bf16x2.f32 %0, f, e; cvt.rn.bf16x2.f32 %1, h, g; }"
      : "=r"(to[0]), "=r"(to[1])
      : "r"(first), "r"(second));
#else
  asm("{ .reg .b16 one, two; cvt.u16.u32 one, %2; cvt.u16.u32 two, %3; "
      "cvt.rn.f16x2.e4m3x2 %0, one; cvt.rn.f16x2.e4m3x2 %1, two; }"
      : "=r"(to[0]), "=r"(to[1])
      : "r"(first), "r"(second));
#endif
}

static __device__ __forceinline__ unsigned short narrow(float x) {
  u32 packed;
#if BFLOAT_OUT
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(0.0f), "f"(x));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(0.0f), "f"(fminf(fmaxf(x, -65504.0f), 65504.0f)));
#endif
  return static_cast<unsigned short>(packed);
}

// start copying a box of a matrix
static __device__ __forceinline__ void bring_box(u32 to, const Map& map, int column, int row, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

static __device__ __forceinline__ float scale_of(const float* scale) {
  const float found = __ldg(scale);
  return found == 0 ? kTiny : found;  // sums are divided by it
}

// a 16-bit value in x's dtype
static __device__ __forceinline__ float widen(unsigned short value) {
#if BFLOAT
  return __uint_as_float(static_cast<u32>(value) << 16);
#else
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
  return wide;
#endif
}

static __device__ __forceinline__ void await_groups() {
  asm volatile("bar.sync 1, %0;" ::"n"(128 * kGroups) : "memory");
}

// clusters

static __device__ __forceinline__ void await_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// a value in the shared memory of another program of the cluster, at the same address
static __device__ __forceinline__ float value_of(u32 address, int program) {
  float value;
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %1, %2; ld.shared::cluster.f32 %0, [there]; }"
      : "=f"(value)
      : "r"(address), "r"(program)
      : "memory");
  return value;
}

constexpr bool kClustered = WHOLE && PARTS > 1;

#if WHOLE && PARTS > 1
#define TOGETHER __cluster_dims__(1, PARTS, 1)
#else
#define TOGETHER
#endif

extern "C" __global__ void TOGETHER __launch_bounds__(kThreads, 1)
    few_rows(const __grid_constant__ Map rows_map, const __grid_constant__ Map weight_map, const float* scales, void* y,
             const unsigned short* bias, int batch, int out, float factor) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ u64 barriers[2 * STAGES];
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const u32 full = shared_address(barriers), free = full + 8 * STAGES, stages = shared_address(memory);
  const int tiles = GATED ? out / 32 : out / 64;
  const int first_tile = blockIdx.x * TILES, active = min(TILES, tiles - first_tile);
  const int part = blockIdx.y, first = kBlocks * part / PARTS, last = kBlocks * (part + 1) / PARTS;

  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (threadIdx.x == 0) {
#pragma unroll
    for (int stage = 0; stage < STAGES; stage++) {
      barrier_of(full + 8 * stage, 1);
      barrier_of(free + 8 * stage, 4 * active);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (group == kGroups) {
    if (lane) return;
    const int bytes = kRowTiles * kRowTile + active * kWeightTile;
    auto bring_weight = [&](int block) {
      const int stage = (block - first) % STAGES;
      const u32 to = stages + stage * kStage + kRowTiles * kRowTile;
      expect(full + 8 * stage, bytes);
      for (int i = 0; i < active; i++) {
#pragma unroll
        for (int j = 0; j < kPieces; j++) {
          const u32 place = to + i * kWeightTile + j * kPiece;
          const int column = block * kBlock + j * (kBlock / kPieces);
#if GATED
          bring(place, weight_map, column, 0, 0, (first_tile + i) * 4, full + 8 * stage);
#else
          bring_box(place, weight_map, column, (first_tile + i) * 64, full + 8 * stage);
#endif
        }
      }
    };
    auto bring_rows = [&](int block) {
      const int stage = (block - first) % STAGES;
#pragma unroll
      for (int i = 0; i < kRowTiles; i++)
        bring_box(stages + stage * kStage + i * kRowTile, rows_map, block * kBlock + i * 64, 0, full + 8 * stage);
    };
    const int begun = min(last, first + STAGES);
    for (int block = first; block < begun; block++) bring_weight(block);
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (int block = first; block < begun; block++) bring_rows(block);
    for (int block = begun; block < last; block++) {
      await(free + 8 * ((block - first) % STAGES), (block - first) / STAGES - 1);
      bring_weight(block);
      bring_rows(block);
    }
    return;
  }

  const int mine = group % TILES, share = group / TILES, tile = first_tile + mine;
  const bool works = mine < active;
  // the thread's first row of the tile, 8 before its second, and of the weight
  const int low = warp * 16 + lane / 4, high = low + 8;
  const int row = GATED ? tile * 32 + warp * 8 + lane / 4 : tile * 64 + low;
  float sums[kSums];
#pragma unroll
  for (int i = 0; i < kSums; i++) sums[i] = 0;
#if FLOAT8
  const float* low_scale = scales + row / kBlock * kBlocks;
  const float* high_scale = scales + (GATED ? out + row : row) / kBlock * kBlocks;
  float before[2] = {1, 1}, next[2] = {1, 1};
  if (works && first + share < last) next[0] = scale_of(low_scale + first + share), next[1] = scale_of(high_scale + first + share);
  for (int block = first + share; works && block < last; block += SPLIT) {
    const int turn = (block - first) / STAGES, stage = (block - first) % STAGES;
    const u32 here = stages + stage * kStage, weight = here + kRowTiles * kRowTile + mine * kWeightTile;
    const float ratio[2] = {before[0] / next[0], before[1] / next[1]};
    before[0] = next[0], before[1] = next[1];
    if (block + SPLIT < last) next[0] = scale_of(low_scale + block + SPLIT), next[1] = scale_of(high_scale + block + SPLIT);
#pragma unroll
    for (int i = 0; i < kSums; i++) sums[i] *= ratio[i / 2 % 2];
    await(full + 8 * stage, turn);
    const char* values = memory + (weight - stages) + 2 * (lane % 4);
    u32 a[8][4];
#pragma unroll
    for (int step = 0; step < 8; step++) {
      // low % 8 and high % 8 are equal
      const int at = (step ^ low % 8) * 16;
      auto pair = [&](int row, int later) {
        return static_cast<u32>(*reinterpret_cast<const unsigned short*>(values + row * kWide + at + later));
      };
      u32 of_low[2], of_high[2];
      convert(pair(low, 0), pair(low, 8), of_low);
      convert(pair(high, 0), pair(high, 8), of_high);
      a[step][0] = of_low[0], a[step][1] = of_high[0], a[step][2] = of_low[1], a[step][3] = of_high[1];
    }
    products_begin();
#pragma unroll
    for (int step = 0; step < 8; step++)
      scores<BATCH>(sums, a[step], wide_at(here + step / 4 * kRowTile + step % 4 * 32), 1);
    products_end();
    await_products<0>();
    if (lane == 0) arrive(free + 8 * stage);
  }
#pragma unroll
  for (int i = 0; i < kSums; i++) sums[i] *= before[i / 2 % 2];
#else
  int used = -1;  // the stage whose products are under way
  for (int block = first + share; works && block < last; block += SPLIT) {
    const int turn = (block - first) / STAGES, stage = (block - first) % STAGES;
    const u32 here = stages + stage * kStage, weight = here + kRowTiles * kRowTile + mine * kWeightTile;
    await(full + 8 * stage, turn);
    products_begin();
#pragma unroll
    for (int step = 0; step < 8; step++)
      scores<BATCH>(sums, wide_at(weight + step / 4 * kPiece + step % 4 * 32), wide_at(here + step / 4 * kRowTile + step % 4 * 32),
                    1);
    products_end();
    // products overlap with the next ones, unless those need this stage
    if (STAGES > SPLIT) {
      await_products<1>();
      if (used >= 0 && lane == 0) arrive(free + 8 * used);
      used = stage;
    } else {
      await_products<0>();
      if (lane == 0) arrive(free + 8 * stage);
    }
  }
  await_products<0>();
#endif
#if SPLIT > 1
  await_groups();  // all stages are free
  float* others = reinterpret_cast<float*>(memory) + threadIdx.x % 128 + mine * 128 * kSums;
  if (share) {
#pragma unroll
    for (int i = 0; i < kSums; i++) others[((share - 1) * TILES * kSums + i) * 128] = sums[i];
  }
  await_groups();
  if (share) return;
#pragma unroll
  for (int i = 0; i < kSums; i++) {
#pragma unroll
    for (int j = 0; j < SPLIT - 1; j++) sums[i] += others[(j * TILES * kSums + i) * 128];
  }
#endif
#if WHOLE && PARTS > 1
  // each program completes every PARTS-th group of four sums
  float* own = reinterpret_cast<float*>(memory) + ((SPLIT - 1) * TILES + mine) * 128 * kSums + threadIdx.x % 128;
#if SPLIT == 1
  await_groups();  // all stages are free
#endif
#pragma unroll
  for (int i = 0; i < kSums; i++) own[i * 128] = sums[i];
  await_cluster();
#pragma unroll
  for (int i = 0; i < kSums; i++) {
    if (i / 4 % PARTS != part) continue;
#pragma unroll
    for (int j = 1; j < PARTS; j++) sums[i] += value_of(shared_address(own + i * 128), (part + j) % PARTS);
  }
  await_cluster();  // the others have read
#endif
  if (!works) return;
#if BIASED
  const float low_bias = widen(__ldg(bias + row)), high_bias = widen(__ldg(bias + row + 8));
#else
  const float low_bias = 0, high_bias = 0;
#endif

  asm volatile("griddepcontrol.wait;" ::: "memory");  // the output's memory may be an input of the previous kernel
#pragma unroll
  for (int i = 0; i < kSums; i += 4) {
    if (kClustered && i / 4 % PARTS != part) continue;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int n = i * 2 + 2 * (lane % 4) + j;
      if (n >= batch) continue;
      const float a = sums[i + j], b = sums[i + 2 + j];
#if GATED
      static_cast<unsigned short*>(y)[static_cast<u64>(n) * out + row] = narrow(a / (1 + __expf(-a)) * b * factor);
#elif WHOLE
      unsigned short* to = static_cast<unsigned short*>(y) + static_cast<u64>(n) * out + row;
      to[0] = narrow(a + low_bias), to[8] = narrow(b + high_bias);
#else
      float* to = static_cast<float*>(y) + (static_cast<u64>(part) * batch + n) * out + row;
      to[0] = a * factor, to[8] = b * factor;
#endif
    }
  }
}
