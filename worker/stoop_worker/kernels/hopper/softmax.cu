// A running softmax of 64 query rows a warpgroup over blocks of KEYS keys, and the mixture of their values: 64
// channels, and 8 more if the heads have them. Sums are scaled down only when a row's scores have grown much.

constexpr int kRows = 64 * WARPGROUPS;
constexpr int kThreads = 128 * WARPGROUPS;
constexpr float kLowest = -1e30f;
constexpr float kLazy = 8.0f;  // of log2: how far a weight may exceed 1 before the sums are scaled down

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

static __device__ __forceinline__ int swizzled(int row, int piece) { return row * kWide + (piece ^ row % 8) * 16; }

// the wide part of a warp's 16 queries, in the registers that a product reads
struct Queries {
  u32 step[4][4];
};

static __device__ __forceinline__ void read(Queries& queries, u32 tile) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    u32* to = queries.step[step];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(tile + swizzled(row, 2 * step + lane / 16)));
  }
}

// A thread holds two of its warpgroup's 64 rows, r and r + 8, and two neighbours of each group of eight columns.
struct State {
  float score[KEYS / 2];
  u32 weight[KEYS / 4];
  float wide[32];
  float narrow[4];
  float peak[2];
  float total[2];
  float decay[2];
};

static __device__ __forceinline__ void begin(State& state) {
#pragma unroll
  for (int i = 0; i < 32; ++i) state.wide[i] = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) state.narrow[i] = 0.0f;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    state.peak[row] = kLowest;
    state.total[row] = 0.0f;
    state.decay[row] = 0.0f;
  }
}

// turn COUNT keys' scores into weights; returns whether the mixture must decay
template <int COUNT>
static __device__ __forceinline__ bool weigh(State& state, float scale) {
  float peak[2] = {kLowest, kLowest};
#pragma unroll
  for (int i = 0; i < COUNT / 2; ++i) peak[i / 2 % 2] = fmaxf(peak[i / 2 % 2], state.score[i]);
#pragma unroll
  for (int row = 0; row < 2; ++row) peak[row] = quad_max(peak[row]) * scale;
  const bool higher = __any_sync(0xffffffffu, peak[0] > state.peak[0] + kLazy || peak[1] > state.peak[1] + kLazy);
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

// Write the first `count` of a warp's 16 rows, each of PIECES times 16 bytes. They go through the warp's own tiles,
// so that they are written in whole pieces.
template <int PIECES>
static __device__ __forceinline__ void write(const State& state, char* wide, char* narrow, char* out, int out_stride,
                                             int count) {
  const int lane = threadIdx.x % 32;
  const float share[2] = {1.0f / quad_sum(state.total[0]), 1.0f / quad_sum(state.total[1])};
#pragma unroll
  for (int i = 0; i < 32; i += 2) {
    const int below = i / 2 % 2;
    *reinterpret_cast<u32*>(wide + swizzled(lane / 4 + 8 * below, i / 4) + lane % 4 * 4) =
        halves(state.wide[i] * share[below], state.wide[i + 1] * share[below]);
  }
  if (PIECES > 8) {
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      *reinterpret_cast<u32*>(narrow + (lane / 4 + 8 * below) * kNarrow + lane % 4 * 4) =
          halves(state.narrow[2 * below] * share[below], state.narrow[2 * below + 1] * share[below]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = lane; i < 16 * PIECES; i += 32) {
    const int row = i / PIECES, piece = i % PIECES;
    if (row < count) {
      const char* from = piece < 8 ? wide + swizzled(row, piece) : narrow + row * kNarrow;
      *reinterpret_cast<uint4*>(out + static_cast<long long>(row) * out_stride + piece * 16) =
          *reinterpret_cast<const uint4*>(from);
    }
  }
}
