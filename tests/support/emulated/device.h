// A GPU on the CPU, for kernels whose GPU instructions are in a file of their own: programs of threads that run by turns.
// The order of warps is random, a copy arrives late and in any order, and what has not arrived reads as NaN.

#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

using std::max;
using std::min;

struct float2 {
  float x, y;
};
struct uint2 {
  u32 x, y;
};
struct alignas(16) Quad {
  u32 x, y, z, w;
};
struct alignas(16) Longs {
  u64 x, y;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }

namespace emulated {

constexpr int kWarp = 32, kStackBytes = 64 * 1024;
constexpr u32 kBase = 4096;  // the address of shared memory's first byte

struct Barrier {
  int expected = 0, pending = 0;
  long long bytes = 0;
  int turn = 0;
  std::vector<struct Thread*> waiting;
};

struct Copy {
  struct Program* program;
  u32 to, barrier;
  const char* from;
  int bytes;
};

struct NamedBarrier {
  int arrived = 0;
  std::vector<struct Thread*> waiting;
};

struct Program {
  int number;
  std::vector<char> memory;
  char* aligned;
  std::unordered_map<u32, Barrier> barriers;
  NamedBarrier named_barriers[2];
};

struct Warp {
  int arrived = 0;
  u32 given[kWarp][8], taken[kWarp][8];
  std::vector<struct Thread*> threads;
};

struct Thread {
  Program* program;
  Warp* warp;
  int number, lane;
  bool ready = true, over = false, begun = false;
  ucontext_t first;
  jmp_buf place;
  std::unique_ptr<char[]> stack;
  std::vector<Copy> uncounted;  // copies that no barrier counts yet
};

inline Thread* current = nullptr;
inline jmp_buf scheduler;
inline std::vector<Copy> copies;
inline std::mt19937 chance;
inline bool failed = false;
inline int threads_of_program = 0;

inline void rest() {
  Thread* self = current;
  if (!_setjmp(self->place)) _longjmp(scheduler, 1);
}

inline void sleep() {
  current->ready = false;
  rest();
}

// the last lane of a warp computes for all
template <typename Compute>
void together(const u32* given, int count, u32* taken, int taken_count, Compute compute) {
  Thread* self = current;
  Warp& warp = *self->warp;
  if (count) memcpy(warp.given[self->lane], given, 4 * count);
  if (++warp.arrived == kWarp) {
    warp.arrived = 0;
    compute(warp);
    for (Thread* other : warp.threads) other->ready = true;
  } else {
    sleep();
  }
  if (taken_count) memcpy(taken, warp.taken[self->lane], 4 * taken_count);
}

inline void named_barrier(int which, int threads) {
  NamedBarrier& barrier = current->program->named_barriers[which];
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    for (Thread* other : barrier.waiting) other->ready = true;
    barrier.waiting.clear();
  } else {
    barrier.waiting.push_back(current);
    sleep();
  }
}

inline void settle(Barrier& barrier) {
  if (barrier.pending || barrier.bytes) return;
  barrier.pending = barrier.expected;
  barrier.turn ^= 1;
  for (Thread* thread : barrier.waiting) thread->ready = true;
  barrier.waiting.clear();
}

inline void land(const Copy& copy) {
  memcpy(copy.program->aligned + copy.to - kBase, copy.from, copy.bytes);
  Barrier& barrier = copy.program->barriers[copy.barrier];
  barrier.bytes -= copy.bytes;
  settle(barrier);
}

struct Place {
  int x;
};
inline Place thread_place() { return {current->number}; }
inline Place program_place() { return {current->program->number}; }

inline float of_bfloat(u32 bits) {
  bits <<= 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

inline float of_half(u32 bits) {
  const u16 half = bits;
  _Float16 value;
  memcpy(&value, &half, 2);
  return value;
}

inline u16 to_bfloat(float value) {
  u32 bits;
  memcpy(&bits, &value, 4);
  if (value != value) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline u16 to_half(float value) {
  const _Float16 half = value;
  u16 bits;
  memcpy(&bits, &half, 2);
  return bits;
}

inline float of_float8(u32 bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if ((bits & 127) == 127) return NAN;
  const float value = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
  return bits & 128 ? -value : value;
}

// the product of 16 x 16 and 16 x 8 values, in the places of mma.m16n8k16
template <typename Wide>
void multiply(float* sums, u32 a, u32 b, u32 c, u32 d, u32 x, u32 y, Wide wide) {
  const u32 given[6] = {a, b, c, d, x, y};
  u32 taken[4];
  together(given, 6, taken, 4, [&](Warp& warp) {
    float left[16][16], right[16][8];
    for (int lane = 0; lane < kWarp; lane++) {
      const int line = lane / 4, part = lane % 4;
      for (int i = 0; i < 2; i++) {
        const int shift = 16 * i;
        left[line][2 * part + i] = wide(warp.given[lane][0] >> shift & 0xffff);
        left[line + 8][2 * part + i] = wide(warp.given[lane][1] >> shift & 0xffff);
        left[line][2 * part + 8 + i] = wide(warp.given[lane][2] >> shift & 0xffff);
        left[line + 8][2 * part + 8 + i] = wide(warp.given[lane][3] >> shift & 0xffff);
        right[2 * part + i][line] = wide(warp.given[lane][4] >> shift & 0xffff);
        right[2 * part + 8 + i][line] = wide(warp.given[lane][5] >> shift & 0xffff);
      }
    }
    float made[16][8] = {};
    for (int row = 0; row < 16; row++)
      for (int i = 0; i < 16; i++)
        for (int column = 0; column < 8; column++) made[row][column] += left[row][i] * right[i][column];
    for (int lane = 0; lane < kWarp; lane++)
      for (int i = 0; i < 4; i++) memcpy(&warp.taken[lane][i], &made[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2], 4);
  });
  for (int i = 0; i < 4; i++) {
    float made;
    memcpy(&made, taken + i, 4);
    sums[i] += made;
  }
}

template <typename Kernel>
struct Launch {
  static inline const Kernel* kernel = nullptr;

  static void enter() {
    (*kernel)();
    current->over = true;
    _longjmp(scheduler, 1);
  }
};

// Run the kernel; returns false if a wait gave up, or if all threads wait. A copy lands with the probability 1 / `lateness` a turn.
template <typename Kernel>
bool launch(int programs, int threads, int shared_bytes, u32 seed, int lateness, const Kernel& kernel) {
  chance.seed(seed);
  failed = false, threads_of_program = threads;
  copies.clear();
  std::vector<Program> all(programs);
  std::vector<Warp> warps(programs * (threads / kWarp));
  std::vector<Thread> fibers(programs * threads);
  Launch<Kernel>::kernel = &kernel;
  for (int number = 0; number < programs; number++) {
    Program& program = all[number];
    program.number = number;
    program.memory.assign(shared_bytes + 1024, '\xff');
    program.aligned = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(program.memory.data()) + 1023) / 1024 * 1024);
    for (int i = 0; i < threads; i++) {
      Thread& thread = fibers[number * threads + i];
      thread.program = &program;
      thread.warp = &warps[number * (threads / kWarp) + i / kWarp];
      thread.warp->threads.push_back(&thread);
      thread.number = i, thread.lane = i % kWarp;
      thread.stack.reset(new char[kStackBytes]);
      getcontext(&thread.first);
      thread.first.uc_stack.ss_sp = thread.stack.get(), thread.first.uc_stack.ss_size = kStackBytes;
      thread.first.uc_link = nullptr;
      makecontext(&thread.first, &Launch<Kernel>::enter, 0);
    }
  }
  std::vector<int> order(warps.size());
  std::vector<int> slow(programs, 0);
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  // kept in static memory, because a jump back may lose changes of locals
  static size_t turn, at, lane, left, ran;
  left = fibers.size();
  for (turn = 0; left && !failed; turn++) {
    ran = 0;
    if (turn % 32 == 0) {
      std::shuffle(order.begin(), order.end(), chance);
      for (int& each : slow) each = chance() % 4;
    }
    for (at = 0; at < order.size() && !failed; at++) {
      Warp& warp = warps[order[at]];
      if (slow[warp.threads[0]->program->number] == 0 && turn % 8) continue;
      for (lane = 0; lane < kWarp && !failed; lane++) {
        Thread& thread = *warp.threads[lane];
        if (!thread.ready || thread.over) continue;
        current = &thread, ran++;
        if (!_setjmp(scheduler)) {
          if (thread.begun) _longjmp(thread.place, 1);
          thread.begun = true;
          setcontext(&thread.first);
        }
        if (current->over) left--;
      }
    }
    // some programs pause in most turns, but none in every eighth
    if (turn % 8 == 0 && !ran && copies.empty()) failed = true;
    for (size_t i = 0; i < copies.size();) {
      if (chance() % lateness) {
        i++;
        continue;
      }
      land(copies[i]);
      copies[i] = copies.back();
      copies.pop_back();
    }
  }
  return !failed && copies.empty();
}

}  // namespace emulated

#define threadIdx (emulated::thread_place())
#define blockIdx (emulated::program_place())
#define __expf(value) std::exp(value)  // libc has the name

template <typename Value>
static inline Value __ldg(const Value* from) {
  return *from;
}
static inline float __uint_as_float(u32 bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static inline u32 __float_as_uint(float value) {
  u32 bits;
  memcpy(&bits, &value, 4);
  return bits;
}
static inline float __fdividef(float a, float b) { return a / b; }
static inline float rsqrtf(float value) { return 1 / std::sqrt(value); }
static inline void __syncthreads() { emulated::named_barrier(0, emulated::threads_of_program); }
static inline void __syncwarp() {
  emulated::together(nullptr, 0, nullptr, 0, [](emulated::Warp&) {});
}
static inline float __shfl_xor_sync(u32, float value, int step) {
  u32 given = __float_as_uint(value), taken;
  emulated::together(&given, 1, &taken, 1, [&](emulated::Warp& warp) {
    for (int lane = 0; lane < emulated::kWarp; lane++) warp.taken[lane][0] = warp.given[lane ^ step][0];
  });
  return __uint_as_float(taken);
}
static inline u32 __reduce_max_sync(u32, u32 value) {
  u32 taken;
  emulated::together(&value, 1, &taken, 1, [](emulated::Warp& warp) {
    u32 most = 0;
    for (int lane = 0; lane < emulated::kWarp; lane++) most = std::max(most, warp.given[lane][0]);
    for (int lane = 0; lane < emulated::kWarp; lane++) warp.taken[lane][0] = most;
  });
  return taken;
}

// barriers and copies, as in hopper.cu

static inline u32 shared_address(const void* pointer) {
  return static_cast<const char*>(pointer) - emulated::current->program->aligned + emulated::kBase;
}
static inline float exp2_of(float x) { return std::exp2(x); }
static inline void barrier_of(u32 barrier, int arrivals) {
  emulated::current->program->barriers[barrier] = {arrivals, arrivals, 0, 0, {}};
}
static inline void expect(u32 barrier, int bytes) {
  emulated::Barrier& found = emulated::current->program->barriers.at(barrier);
  found.bytes += bytes;
  found.pending--;
  emulated::settle(found);
}
static inline void arrive(u32 barrier) {
  emulated::Barrier& found = emulated::current->program->barriers.at(barrier);
  found.pending--;
  emulated::settle(found);
}
