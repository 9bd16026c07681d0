// The instructions of layer_stack/instructions.cu on the CPU.

#include "device.h"

static inline char* dynamic_memory() { return emulated::current->program->aligned; }
static inline float as_float(u32 bits) { return __uint_as_float(bits); }
static inline u16 narrow(float value) { return emulated::to_bfloat(value); }
static inline u32 narrow(float low, float high) { return narrow(low) | static_cast<u32>(narrow(high)) << 16; }
static inline u32 most_of_halves(u32 a, u32 b) {
  return std::max(a >> 16, b >> 16) << 16 | std::max(a & 0xffff, b & 0xffff);
}
static inline uint2 constant_pairs(const u16* from) {
  uint2 pairs;
  memcpy(&pairs, from, sizeof pairs);
  return pairs;
}
static inline u16 constant_half(const u16* from) { return *from; }
static inline Quad shared_quad(const u32* from) {
  emulated::rest();
  Quad quad;
  memcpy(&quad, from, sizeof quad);
  return quad;
}
static inline u32 shared_word(const u32* from) {
  emulated::rest();
  return *from;
}
static inline Longs shared_longs(const u64* from) {
  emulated::rest();
  Longs words;
  memcpy(&words, from, sizeof words);
  return words;
}
template <typename Word>
static inline void share(Word* to, Word word) {
  emulated::rest();
  *to = word;
}
// a clock that goes on by a tenth of a second whenever a thread reads it, so that no load on the machine matters
static inline u64 nanoseconds() {
  thread_local u64 now = 0;
  return now += 100000000;
}

static inline void copy(u32 to, const char* from, int bytes, u32 barrier) {
  emulated::Program& program = *emulated::current->program;
  if (to % 16 || reinterpret_cast<uintptr_t>(from) % 16 || bytes % 16 || bytes <= 0) emulated::failed = true;
  memset(program.aligned + to - emulated::kBase, 0xff, bytes);
  emulated::copies.push_back({&program, to, barrier, from, bytes});
}

static inline void copy_quad(u32 to, const char* from) {
  emulated::Program& program = *emulated::current->program;
  if (to % 16 || reinterpret_cast<uintptr_t>(from) % 16) emulated::failed = true;
  memset(program.aligned + to - emulated::kBase, 0xff, 16);
  emulated::current->uncounted.push_back({&program, to, 0, from, 16});
}
static inline void arrive_behind_quads(u32 barrier) {
  for (emulated::Copy& copy : emulated::current->uncounted) {
    copy.barrier = barrier;
    emulated::current->program->barriers.at(barrier).bytes += copy.bytes;
    emulated::copies.push_back(copy);
  }
  emulated::current->uncounted.clear();
}

static inline void named_barrier(int threads) { emulated::named_barrier(1, threads); }

static inline void multiply_bfloats(float* sums, u32 a, u32 b, u32 c, u32 d, u32 x, u32 y) {
  emulated::multiply(sums, a, b, c, d, x, y, emulated::of_bfloat);
}
static inline void multiply_halves(float* sums, u32 a, u32 b, u32 c, u32 d, u32 x, u32 y) {
  emulated::multiply(sums, a, b, c, d, x, y, emulated::of_half);
}
static inline u32 half_pair(float low, float high) {
  return emulated::to_half(low) | static_cast<u32>(emulated::to_half(high)) << 16;
}
static inline uint2 halves_of(u32 four) {
  auto value = [&](int i) { return emulated::of_float8(four >> 8 * i & 255); };
  return {half_pair(value(0), value(1)), half_pair(value(2), value(3))};
}

static inline bool phase_ended(u32 barrier, int turn) {
  emulated::Barrier& found = emulated::current->program->barriers.at(barrier);
  if (found.turn != turn) return true;
  found.waiting.push_back(emulated::current);
  emulated::sleep();
  return found.turn != turn;
}
static inline void fence_barrier_init() {}
static inline void fence_async_proxy() {}
static inline u32 fetch_add(u32* to) { return (*to)++; }
static inline void load_transposed(u32* to, u32 row) {
  emulated::together(&row, 1, to, 4, [](emulated::Warp& warp) {
    for (int lane = 0; lane < emulated::kWarp; lane++)
      for (int tile = 0; tile < 4; tile++) {
        u16 values[2];
        for (int i = 0; i < 2; i++) {
          const u32 address = warp.given[tile * 8 + lane % 4 * 2 + i][0];
          memcpy(values + i, emulated::current->program->aligned + address - emulated::kBase + lane / 4 * 2, 2);
        }
        warp.taken[lane][tile] = values[0] | static_cast<u32>(values[1]) << 16;
      }
  });
}
static inline void trap() {
  emulated::failed = true;
  emulated::rest();
}
