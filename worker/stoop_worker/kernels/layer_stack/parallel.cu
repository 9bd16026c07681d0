// All layers of a decoder whose attention and MLP read the same norm and end in the same sum, for one row. The package tells
// how a launch works. Weights are bfloat16.
//
// The order of the products hides that programs wait for each other: what one product makes is needed by the next but one.
// Only the norm needs what has just been made.

// A layer's products. The first two read the norm; attention is before kFc2, and kProj reads what it makes.
enum { kQkv, kFc1, kFc2, kProj, kProducts };

// fields of a layer's record; `kFirst` has the rows of qkv and fc1, and `kSecond` the columns of proj and fc2
enum { kFirst, kSecond, kFirstBias, kSecondBias, kNorm, kNormBias };

constexpr int kMostSums = larger(most_rows(DIM), larger(most_rows(kMade), most_rows(INNER)));
constexpr int kSumsApart = kWarps * whole_tiles(kMostSums);

struct Products {
  static constexpr int kCount = kProducts, kAfterHeads = kFc2;

  // the program's part of a product
  __device__ __forceinline__ static Rows rows(int product) {
    if (product == kQkv) return rows_of<kMade, DIM>();
    if (product == kFc2) return rows_of<DIM, INNER>();
    if (product == kProj) return rows_of<DIM, kQueries>();
    Rows rows = rows_of<INNER, DIM>();
    rows.first += kMade;
    return rows;
  }
  __device__ __forceinline__ static int width(int product) {
    return product == kFc2 ? INNER : product == kProj ? kQueries : DIM;
  }
  __device__ __forceinline__ static bool is_first(int product) { return product <= kFc1; }
  // bytes from a row to the next one
  __device__ __forceinline__ static int stride(int product) {
    return kValueBytes * (is_first(product) ? DIM : kQueries + INNER);
  }
  // of a layer's record
  __device__ __forceinline__ static Weight of(const u64* record, int product, const Rows& rows) {
    const char* first = reinterpret_cast<const char*>(record[is_first(product) ? kFirst : kSecond]);
    return {first + (product == kFc2 ? kValueBytes * kQueries : 0), nullptr, rows, width(product), stride(product)};
  }
};

// Take the row that all programs share to shared memory, normed: each value is the sum of two parts. A `plain` row is whole
// already.
static __device__ __forceinline__ void load_normed(Program& program, const u32* from, u32 number, const u16* plain,
                                                   const u16* norm, const u16* bias, float epsilon) {
  const Groups<DIM> groups(DIM);
  constexpr int kEach = Groups<DIM>::kEach;
  static_assert(DIM % (4 * kMultiplying) == 0, "all warps have equally many values");
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint2 factors[kEach], shifts[kEach], given[kEach];
  groups.load(factors, norm);
  groups.load(shifts, bias);
  if (plain) {
    groups.load(given, plain);
  } else {
    groups.await(given, from, number);
  }
  float values[kEach][4], mean = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    widen(given[i], values[i]);
#pragma unroll
    for (int j = 0; j < 4; j++) mean += values[i][j];
  }
  // The squares of a warp's values are those of the differences from the warp's mean, which loses no digits.
  constexpr float kOfWarp = DIM / kWarps;
  mean = warp_sum(mean) / kOfWarp;
#pragma unroll
  for (int i = 0; i < kEach; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) squares += (values[i][j] - mean) * (values[i][j] - mean);
  squares = warp_sum(squares);
  if (lane == 0) program.shared.means[warp] = mean, program.shared.squares[warp] = squares;
  sync_multiplying();
  mean = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < kWarps; i++) mean += program.shared.means[i];
  mean /= kWarps;
#pragma unroll
  for (int i = 0; i < kWarps; i++) {
    const float apart = program.shared.means[i] - mean;
    squares += program.shared.squares[i] + kOfWarp * apart * apart;
  }
  const float factor = rsqrtf(squares / DIM + epsilon);
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    float scaled[4], shifted[4];
    widen(factors[i], scaled), widen(shifts[i], shifted);
#pragma unroll
    for (int j = 0; j < 4; j++) values[i][j] = (values[i][j] - mean) * factor * scaled[j] + shifted[j];
    store_parts(program.row + 4 * threadIdx.x + i * groups.kApart, DIM + kPartGap, values[i]);
  }
  sync_multiplying();
}

// GELU by tanh, as 1 / (1 + exp(-2 u)) = (1 + tanh(u)) / 2
static __device__ __forceinline__ float gelu(float x) {
  constexpr float kTwice = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  return __fdividef(x, 1 + __expf(-kTwice * (x + 0.044715f * x * x * x)));
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) layer_stack(const __grid_constant__ Step step) {
  const Products products;
  Program program(step, products);
  if (program.copies()) return copy_layers(step, program, products);

  const long long slot = *step.slot;
  Shared& shared = program.shared;
  const Rotation rotation(step);
  const int mine = threadIdx.x;
  Residual residual(step, shared.rows[kFc2]);
  const u32 before = *step.counters;

  for (int layer = 0; layer < step.count; layer++) {
    const u64* of = program.layers + layer * FIELDS;
    const u32 number = before + layer + 1;
    auto halves = [&](int field) { return reinterpret_cast<const u16*>(of[field]); };
    // one body for all products, because a layer's instructions are read anew in each layer
#pragma unroll 1
    for (int product = 0; product < kProducts; product++) {
      const Rows rows = shared.rows[product];
      const bool first = products.is_first(product);
      if (product == kFc2) attend_all(step, program, rotation, number, layer, slot, nullptr, nullptr);
      const Own own(program.ring, rows, products.width(product), first ? 2 : 1);
      // read before the product, which takes as long
      const u16* biases = halves(first ? kFirstBias : kSecondBias) + rows.first;
      const float bias = product != kFc2 && mine < rows.count ? wide(constant_half(biases + mine)) : 0;
      if (product == kQkv) {
        load_normed(program, step.out, number - 1, layer == 0 ? step.x : nullptr, halves(kNorm), halves(kNormBias),
                    step.epsilon);
      } else if (!first) {
        load_row(program, products.width(product), product == kFc2 ? step.inner : step.attended, number);
      }
      // a product's sums are read while those of the next one are written
      float* sums = program.sums + product % 2 * kSumsApart;
      multiply(own, program.memory, program.row, sums, products.width(product));
      sync_multiplying();
      if (mine >= rows.count) continue;
      const float sum = sum_of(sums, mine, rows) + bias;
      if (product == kQkv) {
        share(step.qkv + rows.first + mine, word_of(narrow(sum), number));
      } else if (product == kFc1) {
        share(step.inner + rows.first - kMade + mine, word_of(narrow(gelu(sum)), number));
      } else if (product == kFc2) {
        residual.value += sum;
      } else {
        const u16 rounded = residual.add(sum);
        share(step.out + rows.first + mine, word_of(rounded, number));
      }
    }
  }
  residual.store(step);
  program.end(step, before);
}
