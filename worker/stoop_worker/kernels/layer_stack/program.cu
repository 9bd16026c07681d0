// The memory of a program, and what its threads keep through a step.

constexpr int kWidest = larger(kQueries, INNER);
constexpr int kRowValues = larger(2 * DIM + kPartGap, kWidest);
constexpr int kRowRoom = (larger(2 * kRowValues, 4 * kWarps * kGroup * HEAD_DIM) + 127) / 128 * 128;

constexpr int kHead = HEAD_DIM + 8;      // values from a head to the next one
constexpr int kTurned = HEAD_DIM / 64;   // pairs of a head's channels, for each lane
enum { kNewKey = 8, kNewValue = 9, kFresh = 10 };  // places behind the queries
constexpr int kMostProducts = 5;                   // of a layer

struct Rotation {
  float cosines[kTurned], sines[kTurned];

  __device__ __forceinline__ explicit Rotation(const Step& step) {
#pragma unroll
    for (int i = 0; i < kTurned; i++) {
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

static_assert(sizeof(Shared) <= 2 * kFresh * kHead + BESIDE_HEADS, "the host reserves this much");

// `layers` are records of FIELDS numbers, and behind them is room for sums. `ring` is where the thread's warp has come.
struct Program {
  char* memory;
  u16* row;
  Shared& shared;
  u64* layers;
  float* sums;
  Ring ring;
  const int context;
  const Range range;

  template <typename PRODUCTS>
  __device__ __forceinline__ Program(const Step& step, PRODUCTS)
      : memory(dynamic_memory()),
        row(reinterpret_cast<u16*>(memory + STAGES * kSlot)),
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

// the value of the row that runs through all layers of which a thread makes the sum, if it `owns` one
struct Residual {
  int at;
  bool owns;
  float value;

  // `rows` are those of a product that is added to it
  __device__ __forceinline__ Residual(const Step& step, const Rows& rows)
      : at(rows.first + threadIdx.x), owns(static_cast<int>(threadIdx.x) < rows.count), value(owns ? wide(step.x[at]) : 0) {}

  __device__ __forceinline__ u16 add(float sum) {
    const u16 rounded = narrow(value + sum);
    value = wide(rounded);
    return rounded;
  }
  __device__ __forceinline__ void store(const Step& step) const {
    if (owns) step.y[at] = narrow(value);
  }
};

// Copy all that a program reads, ahead of the warps that multiply.
template <typename PRODUCTS>
static __device__ __forceinline__ void copy_layers(const Step& step, Program& program, PRODUCTS) {
  const int copier = threadIdx.x / 32 - kWarps, lane = threadIdx.x % 32;
  const u64* layers = program.layers;
  for (int layer = 0; layer < step.count; layer++, layers += FIELDS) {
#pragma unroll 1
    for (int product = 0; product < PRODUCTS::kCount; product++) {
      if (product == PRODUCTS::kAfterHeads) copy_heads(program.ring, step, layer, program.range, copier, lane);
      copy_rows(program.ring, PRODUCTS::of(layers, product, program.shared.rows[product]), copier, lane);
    }
  }
}
