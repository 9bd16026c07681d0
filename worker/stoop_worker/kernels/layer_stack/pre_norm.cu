// All layers of a pre-norm decoder with a gated MLP, for one row. The package tells how a launch works. The host also
// defines NORMS (of heads) and FLOAT8 (weights are e4m3 with a scale for each block of 128 x 128, else bfloat16).

// a layer's products; attention is before kOut
enum { kQkv, kOut, kGates, kUps, kDown, kProducts };

// fields of a layer's record, behind four weights and their scales
enum { kScales = 4, kNorm = 8, kMlpNorm, kQNorm, kKNorm };

constexpr int kGateSums = whole_tiles(most_rows(INNER));

struct Products {
  static constexpr int kCount = kProducts, kAfterHeads = kOut;

  // the program's part of a product
  __device__ __forceinline__ static Rows rows(int product) {
    if (product == kQkv) return rows_of<kMade, DIM>();
    if (product == kOut) return rows_of<DIM, kQueries>();
    if (product == kDown) return rows_of<DIM, INNER>();
    Rows rows = rows_of<INNER, DIM>();
    if (product == kUps) rows.first += INNER;
    return rows;
  }
  __device__ __forceinline__ static int width(int product) {
    return product == kOut ? kQueries : product == kDown ? INNER : DIM;
  }
  // of a layer's record
  __device__ __forceinline__ static Weight of(const u64* record, int product, const Rows& rows) {
    const int field = product < kUps ? product : product - 1;
    return {reinterpret_cast<const char*>(record[field]), reinterpret_cast<const float*>(record[field + kScales]),
            rows, width(product), width(product) * kValueBytes};
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1) layer_stack(const __grid_constant__ Step step) {
  const Products products;
  Program program(step, products);
  if (program.copies()) return copy_layers(step, program, products);

  const long long slot = *step.slot;
  Shared& shared = program.shared;
  const Rotation rotation(step);
  const int mine = threadIdx.x;
  Residual residual(step, shared.rows[kDown]);
  const u32 before = *step.counters;

  for (int layer = 0; layer < step.count; layer++) {
    const u64* of = program.layers + layer * FIELDS;
    const u32 number = before + layer + 1;
    auto halves = [&](int field) { return reinterpret_cast<const u16*>(of[field]); };
    float factor = 1;
    // one body for all products, because a layer's instructions are read anew in each layer
#pragma unroll 1
    for (int product = 0; product < kProducts; product++) {
      const Rows rows = shared.rows[product];
      if (product == kOut) attend_all(step, program, rotation, number, layer, slot, halves(kQNorm), halves(kKNorm));
      const bool first = product == kQkv, normed = first || product == kGates || product == kUps;
      const Own own(program.ring, rows, products.width(product), normed ? kParts<true> : 1);
      if (first || product == kGates) {
        factor = load_row<DIM, true>(program, DIM, first ? step.out : step.middle, first ? number - 1 : number,
                                     first && layer == 0 ? step.x : nullptr, halves(first ? kNorm : kMlpNorm),
                                     step.epsilon);
      } else if (product != kUps) {
        factor = load_row(program, products.width(product), product == kOut ? step.attended : step.inner, number);
      }
      float* sums = program.sums + (product == kUps ? kGateSums * kWarps : 0);
      multiply(own, program.memory, program.row, sums, products.width(product));
      if (product == kGates) continue;
      sync_multiplying();
      if (mine >= rows.count) continue;
      const float sum = sum_of(sums, mine, rows) * factor;
      if (product == kQkv) {
        share(step.qkv + rows.first + mine, word_of(narrow(sum), number));
      } else if (product == kUps) {
        const float gate = sum_of(program.sums, mine, rows) * factor;
        share(step.inner + shared.rows[kGates].first + mine,
              word_of(narrow(__fdividef(gate, 1 + __expf(-gate)) * sum), number));
      } else {
        share((product == kOut ? step.middle : step.out) + rows.first + mine, word_of(residual.add(sum), number));
      }
    }
  }
  residual.store(step);
  program.end(step, before);
}
