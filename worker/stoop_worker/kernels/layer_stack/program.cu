// The memory of a program, and what its threads keep through a step.

// The parts of a row, whose sum it is: two of bfloat16 behind a norm, else one. Of float8, each a sixteenth of the one
// before, there are three behind a norm, and two else, because two hold a bfloat16 value.
template <bool NORM>
constexpr int kParts = (FLOAT8 ? 2 : 1) + NORM;

template <bool NORM>
static __device__ constexpr int row_bytes(int width) { return kParts<NORM> * (width * kValueBytes + kPartGap); }

constexpr int kWidest = larger(kQueries, INNER);
constexpr int kRowBytes = larger(row_bytes<true>(DIM), row_bytes<false>(kWidest));
constexpr int kRowRoom = (larger(kRowBytes, 4 * kWarps * kGroup * HEAD_DIM) + 127) / 128 * 128;

constexpr int kHead = HEAD_DIM + 8;      // values from a head to the next one
constexpr int kPairs = HEAD_DIM / 64;    // of a head's channels, for each lane
enum { kNewKey = 8, kNewValue = 9, kFresh = 10 };  // places behind the queries
constexpr int kMostProducts = 5;                   // of a layer

struct Rotation {
  float cosines[kPairs], sines[kPairs];

  __device__ __forceinline__ explicit Rotation(const Step& step) {
#pragma unroll
    for (int i = 0; i < kPairs; i++) {
      const int pair = 32 * i + threadIdx.x % 32;
      const float* from = step.rotations + 2 * (*step.position * FREQUENCIES + pair);
      cosines[i] = pair < FREQUENCIES ? from[0] : 1;
      sines[i] = pair < FREQUENCIES ? from[1] : 0;
    }
  }
};

struct Shared {
  u64 barriers[2 * STAGES];
  Rows rows[kMostProducts];  // the program's part of a layer's products
  float squares[kWarps], means[kWarps];
  u32 most[kWarps];
  float tops[kWarps][8], totals[kWarps][8];
  alignas(16) u16 heads[kFresh * kHead];
};

// `layers` are records of FIELDS numbers, and behind them is room for sums. `ring` is where the thread's warp has come.
struct Program {
  char* memory;
  char* row;
  Shared& shared;
  u64* layers;
  float* sums;
  Ring ring;
  const int context;
  const Range range;

  template <typename PRODUCTS>
  __device__ __forceinline__ Program(const Step& step, PRODUCTS)
      : memory(dynamic_memory()),
        row(memory + STAGES * kSlot),
        shared(*reinterpret_cast<Shared*>(memory + STAGES * kSlot + kRowRoom)),
        layers(reinterpret_cast<u64*>(&shared + 1)),
        sums(reinterpret_cast<float*>(layers + step.count * FIELDS)),
        ring{shared_address(memory), shared_address(shared.barriers)},
        context(*step.context),
        range(context) {
#pragma unroll 1
    for (int i = threadIdx.x; i < step.count * FIELDS; i += kThreads) layers[i] = step.layers[i];
#pragma unroll 1
    for (int i = threadIdx.x; i < kFresh * kHead; i += kThreads) shared.heads[i] = 0;
    if (threadIdx.x == 0) {
#pragma unroll
      for (int i = 0; i < PRODUCTS::kCount; i++) shared.rows[i] = PRODUCTS::rows(i);
#pragma unroll 1
      for (int i = 0; i < STAGES; i++) {
        barrier_of(ring.barriers + 16 * i, 1);
        barrier_of(ring.barriers + 16 * i + 8, kTeam);
      }
      fence_barrier_init();
    }
    __syncthreads();
  }

  static __device__ __forceinline__ bool copies() { return threadIdx.x >= kMultiplying; }

  // All programs have read the counter of layers by then, and none waits any more.
  static __device__ __forceinline__ void end(const Step& step, u32 before) {
    if (threadIdx.x != 0 || fetch_add(step.counters + 1) + 1 != PROGRAMS) return;
    step.counters[0] = before + step.count;
    step.counters[1] = 0;
  }
};

// Copy all that a program reads, ahead of the warps that multiply.
template <typename PRODUCTS>
static __device__ __forceinline__ void copy_layers(const Step& step, Program& program, PRODUCTS) {
  const int copier = threadIdx.x / 32 - kWarps, lane = threadIdx.x % 32;
  const u64* layers = program.layers;
  Ahead ahead;
  for (int layer = 0; layer < step.count; layer++, layers += FIELDS) {
#pragma unroll 1
    for (int product = 0; product < PRODUCTS::kCount; product++) {
      if (product == PRODUCTS::kAfterHeads) copy_heads(program.ring, step, layer, program.range, copier, lane);
      const Rows* rows = program.shared.rows;
      const Weight weight = PRODUCTS::of(layers, product, rows[product]);
      if (kAhead) {
        const bool ends = product + 1 == PRODUCTS::kCount, last = ends && layer + 1 == step.count;
        const Part none{nullptr, 0};
        const int next = ends ? 0 : product + 1;
        ahead.enter(weight.part(), last ? none : PRODUCTS::of(ends ? layers + FIELDS : layers, next, rows[next]).part());
      }
      copy_rows(program.ring, weight, ahead, copier, lane);
    }
  }
}
