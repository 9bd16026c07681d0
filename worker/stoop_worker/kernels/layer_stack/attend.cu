// Attention of one row: each program has a range of the positions of one key head.

constexpr int kPairs = HEAD_DIM / 64;  // of a head's channels, for each lane
constexpr int kHead = HEAD_DIM + 8;    // values from a head to the next one
enum { kNewKey = 8, kNewValue = 9, kFresh = 10 };  // places behind the queries

struct Rotation {
  float cosines[kPairs], sines[kPairs];
};

// Take the queries of the program's key head, and its new key and value, to shared memory, normed and rotated.
static __device__ __forceinline__ void load_heads(u16* heads, const u16* qkv, const u16* q_norm, const u16* k_norm,
                                                  const Rotation& rotation, const Range& range, float epsilon) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int given = warp; given < kGroup + 2; given += kWarps) {
    const bool query = given < kGroup, value = given == kGroup + 1;
    const int head = query ? range.head * kGroup + given : HEADS + (value ? KEY_HEADS : 0) + range.head;
    const u16* from = qkv + head * HEAD_DIM;
    u16* to = heads + (query ? given : value ? kNewValue : kNewKey) * kHead;
    float real[kPairs], imaginary[kPairs], squares = 0;
#pragma unroll
    for (int i = 0; i < kPairs; i++) {
      const int pair = 32 * i + lane;
      const bool turned = !value && pair < FREQUENCIES;
      real[i] = wide(shared_half(from + (turned ? pair : 2 * pair)));
      imaginary[i] = wide(shared_half(from + (turned ? FREQUENCIES + pair : 2 * pair + 1)));
      squares += real[i] * real[i] + imaginary[i] * imaginary[i];
    }
#if NORMS
    if (!value) {
      const float factor = rsqrtf(warp_sum(squares) / HEAD_DIM + epsilon);
      const u16* norm = query ? q_norm : k_norm;
#pragma unroll
      for (int i = 0; i < kPairs; i++) {
        const int pair = 32 * i + lane;
        const bool turned = pair < FREQUENCIES;
        real[i] = wide(narrow(real[i] * factor * wide(__ldg(norm + (turned ? pair : 2 * pair)))));
        imaginary[i] = wide(narrow(imaginary[i] * factor * wide(__ldg(norm + (turned ? FREQUENCIES + pair : 2 * pair + 1)))));
      }
    }
#endif
#pragma unroll
    for (int i = 0; i < kPairs; i++) {
      const int pair = 32 * i + lane;
      float a = real[i], b = imaginary[i];
      if (!value && pair < FREQUENCIES) {
        a = real[i] * rotation.cosines[i] - imaginary[i] * rotation.sines[i];
        b = real[i] * rotation.sines[i] + imaginary[i] * rotation.cosines[i];
      }
      *reinterpret_cast<u32*>(to + 2 * pair) = narrow(a, b);
    }
  }
}

// The running softmax of a warp's positions; a lane has query lane / 4, and two of every eight channels.
struct Mixture {
  float top = kLowest, total = 0, mixed[HEAD_DIM / 8][2];

  // attend to the positions of a tile, whose rows follow `keys` and `values`
  __device__ __forceinline__ void take(const u16* heads, const char* keys, const char* values, int count, float scale) {
    const int lane = threadIdx.x % 32, line = lane / 4, part = lane % 4;
    float scores[2][4] = {};
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; step++) {
      const u16* query = heads + line * kHead + step * 16 + 2 * part;
      const u32 a = *reinterpret_cast<const u32*>(query), c = *reinterpret_cast<const u32*>(query + 8);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const char* key = keys + (8 * half + line) * kHeadRow + step * 32 + 4 * part;
        multiply_bfloats(scores[half], a, 0, c, 0, *reinterpret_cast<const u32*>(key),
                         *reinterpret_cast<const u32*>(key + 16));
      }
    }
    float peak = top;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        scores[half][i] = 8 * half + 2 * part + i < count ? scores[half][i] * scale : kLowest;
        peak = fmaxf(peak, scores[half][i]);
      }
    peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 1));
    peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 2));
    float sum = 0;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        scores[half][i] = 8 * half + 2 * part + i < count ? exp2f(scores[half][i] - peak) : 0;
        sum += scores[half][i];
      }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const float kept = exp2f(top - peak);
    top = peak;
    total = total * kept + sum;
    const u32 a = narrow(scores[0][0], scores[0][1]), c = narrow(scores[1][0], scores[1][1]);
    const u32 value = shared_address(values + (lane / 8 % 2 * 8 + lane % 8) * kHeadRow + lane / 16 * 16);
#pragma unroll
    for (int eight = 0; eight < HEAD_DIM / 8; eight += 2) {
      u32 x[4];
      load_transposed(x, value + eight * 16);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float sums[4] = {mixed[eight + i][0] * kept, mixed[eight + i][1] * kept, 0, 0};
        multiply_bfloats(sums, a, 0, c, 0, x[2 * i], x[2 * i + 1]);
        mixed[eight + i][0] = sums[0], mixed[eight + i][1] = sums[1];
      }
    }
  }
};

struct Shared {
  u64 barriers[2 * STAGES];
  float squares[kWarps], most[kWarps];
  float tops[kWarps][8], totals[kWarps][8];
  u32 last;
  alignas(16) float sums[kSums * kWarps];
  alignas(16) u16 heads[kFresh * kHead];
};

// Attend to the program's range of positions. The last program of a key head to end combines its ranges.
static __device__ __forceinline__ void attend(const Step& step, Ring& ring, char* memory, u16* row, Shared& shared,
                                              const Range& range, int layer, int context, long long slot) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, line = lane / 4, part = lane % 4;
  const int newest = slot >= 0 ? context - 1 : -1;
  const int tiles = (range.last - range.first + kTile - 1) / kTile;
  Mixture mixture;
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 8; i++) mixture.mixed[i][0] = mixture.mixed[i][1] = 0;
  for (int tile = 0; tile < tiles; tile++) {
    const int half = tile % 2;
    if (half == 0) wait_for(ring.full(), ring.turn);
    if (tile % kWarps == warp) {
      char* keys = memory + ring.slot * kSlot + half * kTile * kHeadRow;
      char* values = keys + kPositions * kHeadRow;
      const int first = range.first + tile * kTile, count = min(kTile, range.last - first);
      constexpr int kQuads = kHeadBytes / 16;
      if (newest >= first && newest < first + count) {
        for (int i = lane; i < 2 * kQuads; i += 32) {
          const int place = i / kQuads, quad = i % kQuads;
          *reinterpret_cast<Quad*>((place ? values : keys) + (newest - first) * kHeadRow + quad * 16) =
              *reinterpret_cast<const Quad*>(shared.heads + (kNewKey + place) * kHead + quad * 8);
        }
      }
      // what the slot held before may not be finite
      for (int i = count * kQuads + lane; i < kTile * kQuads; i += 32)
        *reinterpret_cast<Quad*>(values + i / kQuads * kHeadRow + i % kQuads * 16) = Quad{0, 0, 0, 0};
      __syncwarp();
      mixture.take(shared.heads, keys, values, count, step.scale);
      // the copy engine writes there next
      fence_async_proxy();
    }
    if (half == 1 || tile + 1 == tiles) {
      __syncwarp();
      if (lane == 0) arrive(ring.empty());
      ring.next();
    }
  }

  // the warps' mixtures
  const int mixing = min(tiles, kWarps);
  float* mixed = reinterpret_cast<float*>(row);
  if (warp < mixing && line < kGroup) {
    if (part == 0) shared.tops[warp][line] = mixture.top, shared.totals[warp][line] = mixture.total;
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++)
      *reinterpret_cast<float2*>(mixed + (warp * kGroup + line) * HEAD_DIM + 8 * i + 2 * part) =
          make_float2(mixture.mixed[i][0], mixture.mixed[i][1]);
  }
  // one of the programs stores the new key and value
  if (newest >= range.first && newest < range.last && threadIdx.x < HEAD_DIM) {
    const int place = threadIdx.x / (HEAD_DIM / 2), pair = threadIdx.x % (HEAD_DIM / 2);
    char* to = step.pool + layer * step.layer_bytes + place * step.values_offset +
               (slot * KEY_HEADS + range.head) * kHeadBytes;
    reinterpret_cast<u32*>(to)[pair] = *reinterpret_cast<const u32*>(shared.heads + (kNewKey + place) * kHead + 2 * pair);
  }
  sync_multiplying();
  u16* out = step.attended + range.head * kGroup * HEAD_DIM;
  float* parts = step.parts + (range.head * SPLITS + range.split) * kGroup * HEAD_DIM;
  float* part_sums = step.part_sums + (range.head * SPLITS + range.split) * kGroup * 2;
  for (int pair = threadIdx.x; pair < kGroup * HEAD_DIM / 2; pair += kMultiplying) {
    const int head = 2 * pair / HEAD_DIM;
    float top = kLowest, total = 0, a = 0, b = 0;
    for (int i = 0; i < mixing; i++) top = fmaxf(top, shared.tops[i][head]);
    for (int i = 0; i < mixing; i++) {
      const float kept = exp2f(shared.tops[i][head] - top);
      const float2 value = *reinterpret_cast<const float2*>(mixed + i * kGroup * HEAD_DIM + 2 * pair);
      total += kept * shared.totals[i][head];
      a += kept * value.x, b += kept * value.y;
    }
    if (range.active == 1) {
      const float whole = total > 0 ? 1 / total : 0;
      *reinterpret_cast<u32*>(out + 2 * pair) = narrow(a * whole, b * whole);
    } else {
      *reinterpret_cast<float2*>(parts + 2 * pair) = make_float2(a, b);
      if (2 * pair % HEAD_DIM == 0) *reinterpret_cast<float2*>(part_sums + 2 * head) = make_float2(top, total);
    }
  }
  if (range.active == 1) return;

  sync_multiplying();
  if (threadIdx.x == 0) {
    shared.last = fetch_add_acq_rel(step.counters + 2 + range.head) + 1 == static_cast<u32>(range.active);
  }
  sync_multiplying();
  if (!shared.last) return;
  parts -= range.split * kGroup * HEAD_DIM, part_sums -= range.split * kGroup * 2;
  for (int pair = threadIdx.x; pair < kGroup * HEAD_DIM / 2; pair += kMultiplying) {
    const int head = 2 * pair / HEAD_DIM;
    float2 sums[SPLITS], values[SPLITS];
#pragma unroll
    for (int i = 0; i < SPLITS; i++) {
      sums[i] = make_float2(kLowest, 0), values[i] = make_float2(0, 0);
      if (i < range.active) {
        sums[i] = shared_pair(part_sums + i * kGroup * 2 + 2 * head);
        values[i] = shared_pair(parts + i * kGroup * HEAD_DIM + 2 * pair);
      }
    }
    float top = kLowest, total = 0, a = 0, b = 0;
#pragma unroll
    for (int i = 0; i < SPLITS; i++) top = fmaxf(top, sums[i].x);
#pragma unroll
    for (int i = 0; i < SPLITS; i++) {
      const float kept = exp2f(sums[i].x - top);
      total += kept * sums[i].y;
      a += kept * values[i].x, b += kept * values[i].y;
    }
    const float whole = total > 0 ? 1 / total : 0;
    *reinterpret_cast<u32*>(out + 2 * pair) = narrow(a * whole, b * whole);
  }
  if (threadIdx.x == 0) step.counters[2 + range.head] = 0;
}

