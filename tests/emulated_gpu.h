// A GPU's block of threads on one CPU thread, so that tests run CUDA kernels where no GPU is.
//
// Put before a .cu source, this header supplies what the source uses of CUDA. The threads of a
// block are fibers. A fiber runs until it meets others (a barrier, a shuffle, a matrix product);
// the last one to arrive does the work for all. Every bug that is found ends the launch with a
// message, and emulated_gpu.py raises it.
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)

using u32 = unsigned int;

struct uint2 { u32 x, y; } __attribute__((aligned(8)));
struct uint4 { u32 x, y, z, w; } __attribute__((aligned(16)));
struct float4 { float x, y, z, w; } __attribute__((aligned(16)));
struct dim3 { u32 x, y, z; };

dim3 threadIdx, blockIdx, blockDim, gridDim;

// The shared memory of the block that runs: `extern __shared__ uint4 pool[];` in the source. More
// than the 228 KB of a GPU, to notice writes past the end.
uint4 pool[256 * 1024 / sizeof(uint4)];

namespace emulated {

constexpr int WARP = 32;
constexpr size_t STACK = 256 * 1024;  // bytes per fiber; only what is touched takes memory

// Threads that meet: a warp's or all of a block's.
struct Group {
    int first, count;        // its threads
    int living;              // those that have not returned
    int arrived = 0;         // those that wait for the others
    const char *place = "";  // where they wait
    bool barrier = false;    // whether that place lets threads that have returned be missing
    void *operands[WARP];    // what each lane of a warp brings
};

struct Thread {
    std::unique_ptr<char[]> stack{new char[STACK]};
    ucontext_t start;
    jmp_buf state;
    bool started, returned;
    Group *waits_in;  // nullptr: can go on
    const char *place;  // where it waits
    int line;
};

std::vector<Thread> threads;  // kept from block to block, for their stacks
std::vector<Group> warps;
Group block;
int running;  // the thread that runs
size_t shared_bytes;
jmp_buf scheduler;
ucontext_t first_scheduler;
std::function<void()> body;
std::string failure;

// A fiber starts by ucontext and is switched by jumps, which need no system call.
__attribute__((noinline)) void resume(int number) {
    Thread &thread = threads[running = number];
    threadIdx = {u32(number), 0, 0};
    if (_setjmp(scheduler)) return;
    if (thread.started) _longjmp(thread.state, 1);
    thread.started = true;
    swapcontext(&first_scheduler, &thread.start);
}

__attribute__((noinline)) void pause() {
    if (!_setjmp(threads[running].state)) _longjmp(scheduler, 1);
}

std::string in_line(const char *place, int line) {
    return std::string(place) + " (line " + std::to_string(line) + ")";
}

std::string name_of(dim3 at) {
    return "block (" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " +
           std::to_string(at.z) + ")";
}

// Ends the launch from inside a thread; the fibers are abandoned as they stand.
[[noreturn]] void fail(const std::string &what) {
    failure = name_of(blockIdx) + ", thread " + std::to_string(running) + ": " + what;
    _longjmp(scheduler, 1);
}

void release(Group &group) {
    group.arrived = 0;
    for (int i = group.first; i < group.first + group.count; ++i)
        if (threads[i].waits_in == &group) threads[i].waits_in = nullptr;
}

// Waits for the group at this place; `work` is done once, by the last one to arrive.
template <class Work>
void meet(Group &group, const char *place, int line, bool barrier, Work work) {
    Thread &me = threads[running];
    me.place = place;
    me.line = line;
    if (group.arrived && strcmp(group.place, place))
        fail("is at " + in_line(place, line) + " while others of its group wait at " + group.place);
    group.place = place;
    group.barrier = barrier;
    if (++group.arrived == (barrier ? group.living : group.count)) {
        work();
        release(group);
    } else {
        me.waits_in = &group;
        pause();
    }
}

Group &my_warp() { return warps[running / WARP]; }

// Each lane's operands stay on its own stack: the last lane reads and writes all of them.
template <class Operands>
void meet_warp(const char *place, int line, Operands &mine, void (*work)(Operands *const *)) {
    Group &warp = my_warp();
    warp.operands[running % WARP] = &mine;
    meet(warp, place, line, false,
         [&] { work(reinterpret_cast<Operands *const *>(warp.operands)); });
}

void require_all_lanes(u32 mask, const char *place) {
    if (mask != 0xffffffffu) fail(std::string(place) + " is emulated for whole warps only");
}

// A barrier does not wait for threads that have returned.
void leave(Group &group) {
    --group.living;
    if (group.barrier && group.arrived && group.arrived == group.living) release(group);
}

void thread_main() {
    body();
    threads[running].returned = true;
    leave(my_warp());
    leave(block);
    _longjmp(scheduler, 1);
}

void prepare_threads(int count) {
    if (threads.size() < size_t(count)) threads.resize(count);
    warps.assign(count / WARP, Group{});
    for (int w = 0; w < count / WARP; ++w) {
        warps[w].first = w * WARP;
        warps[w].count = warps[w].living = WARP;
    }
    block = Group{};
    block.first = 0;
    block.count = block.living = count;
    for (int i = 0; i < count; ++i) {
        Thread &thread = threads[i];
        getcontext(&thread.start);
        thread.start.uc_stack.ss_sp = thread.stack.get();
        thread.start.uc_stack.ss_size = STACK;
        thread.start.uc_link = nullptr;
        makecontext(&thread.start, thread_main, 0);
        thread.started = thread.returned = false;
        thread.waits_in = nullptr;
    }
}

// Lets each lane that can go on run until it meets the others; whether there was one.
bool advance(const Group &warp, bool backwards) {
    bool any = false;
    for (int i = 0; i < WARP && failure.empty(); ++i) {
        const int number = warp.first + (backwards ? WARP - 1 - i : i);
        if (threads[number].returned || threads[number].waits_in) continue;
        resume(number);
        any = true;
    }
    return any;
}

void report_standstill() {
    std::map<std::string, int> waiting;
    int returned = 0;
    for (int i = 0; i < block.count; ++i) {
        if (threads[i].returned) ++returned;
        else ++waiting[in_line(threads[i].place, threads[i].line)];
    }
    if (waiting.empty()) return;
    failure = name_of(blockIdx) + " stands still:";
    for (const auto &[place, count] : waiting)
        failure += " " + std::to_string(count) + " threads wait at " + place + ",";
    failure += " " + std::to_string(returned) + " have returned";
}

void check_unasked_memory() {
    const auto *bytes = reinterpret_cast<const unsigned char *>(pool);
    for (size_t i = shared_bytes; i < sizeof pool; ++i)
        if (bytes[i] != 0xff) {
            failure = name_of(blockIdx) + " has written to shared memory at byte " +
                      std::to_string(i) + " of " + std::to_string(shared_bytes);
            return;
        }
}

// A warp runs as far as it can before the next one does, and every other block runs backwards: a
// barrier that is missing then shows in the results.
void run_block(bool backwards) {
    memset(pool, 0xff, sizeof pool);  // NaN as bf16 and as fp32, for reads of what nobody wrote
    prepare_threads(blockDim.x);
    for (bool any = true; any && failure.empty();) {
        any = false;
        for (size_t w = 0; w < warps.size(); ++w)
            while (advance(warps[backwards ? warps.size() - 1 - w : w], backwards)) any = true;
    }
    if (failure.empty()) report_standstill();
    if (failure.empty()) check_unasked_memory();
}

// What a thread reads or writes past a tensor's end, where emulated_gpu.py puts no memory.
void stray(int) { fail("access outside of all tensors"); }

// Takes this signal for as long as it lives.
struct Watch {
    struct sigaction before;

    Watch() {
        struct sigaction ours = {};
        ours.sa_handler = stray;
        ours.sa_flags = SA_NODEFER;  // a jump leaves the handler, and nothing is to stay blocked
        sigaction(SIGSEGV, &ours, &before);
    }
    ~Watch() { sigaction(SIGSEGV, &before, nullptr); }
};

template <class... A, size_t... I>
void set_body(void (*kernel)(A...), void **args, std::index_sequence<I...>) {
    body = [=] { kernel(*static_cast<A *>(args[I])...); };
}

// Runs the kernel; nullptr or what went wrong.
template <class... A>
const char *run(void (*kernel)(A...), dim3 grid, dim3 block_size, size_t shared, void **args) {
    set_body(kernel, args, std::index_sequence_for<A...>{});
    gridDim = grid;
    blockDim = block_size;
    shared_bytes = shared;
    failure.clear();
    const Watch watch;
    int number = 0;
    for (u32 z = 0; z < grid.z; ++z)
        for (u32 y = 0; y < grid.y; ++y)
            for (u32 x = 0; x < grid.x && failure.empty(); ++x) {
                blockIdx = {x, y, z};
                run_block(number++ % 2);
            }
    return failure.empty() ? nullptr : failure.c_str();
}

// What can be passed for a parameter: a letter of emulated_gpu.py's.
template <class P>
constexpr char letter() {
    if (std::is_pointer_v<P>) return 'p';
    if (std::is_integral_v<P> && sizeof(P) == 4) return 'i';
    if (std::is_same_v<P, double>) return 'd';
    return '?';
}

template <class... A>
const char *parameters(void (*)(A...)) {
    static const char letters[] = {letter<A>()..., 0};
    return letters;
}

float from_bits(u32 bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

u32 bf16(float value) {
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return 0x7fff;  // rounding could carry a NaN into an infinity or a zero
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

}  // namespace emulated

// Barriers, shuffles and the rest of CUDA that the kernels use. `line` is the caller's.

inline void __syncthreads(int line = __builtin_LINE()) {
    emulated::meet(emulated::block, "__syncthreads", line, true, [] {});
}

struct Shuffle { float value; int other; };

inline float emulated_shuffle(const char *place, u32 mask, float value, int other, int line) {
    emulated::require_all_lanes(mask, place);
    Shuffle mine{value, other};
    emulated::meet_warp<Shuffle>(place, line, mine, [](Shuffle *const *lanes) {
        float values[emulated::WARP];
        for (int l = 0; l < emulated::WARP; ++l) values[l] = lanes[l]->value;
        for (int l = 0; l < emulated::WARP; ++l) lanes[l]->value = values[lanes[l]->other];
    });
    return mine.value;
}

inline float __shfl_xor_sync(u32 mask, float value, int bits, int line = __builtin_LINE()) {
    const int lane = emulated::running % emulated::WARP;
    return emulated_shuffle("__shfl_xor_sync", mask, value, (lane ^ bits) % emulated::WARP, line);
}

inline float atomicAdd(float *sum, float value) {
    const float before = *sum;
    *sum += value;
    return before;
}

// C23's <math.h> has an rsqrtf too.
inline float emulated_rsqrtf(float x) { return float(1 / sqrt(double(x))); }
#define rsqrtf emulated_rsqrtf

// The kernels' own primitives, which on a GPU are PTX instructions.

inline float low(u32 pair) { return emulated::from_bits(pair << 16); }
inline float high(u32 pair) { return emulated::from_bits(pair & 0xffff0000u); }
inline float relu(float x) { return x < 0.0f ? 0.0f : x; }
inline u32 packed(float lo, float hi) { return emulated::bf16(lo) | emulated::bf16(hi) << 16; }

struct MatrixRows {
    uint16_t row[8];  // the lane's: row l % 8 of matrix l / 8
    u32 r[4];
};

// A lane's row is read when the lane arrives: ldmatrix orders no memory accesses, so a row that
// another lane writes needs a barrier in between.
inline MatrixRows emulated_row(const void *row, const char *place, int line) {
    const intptr_t offset = intptr_t(row) - intptr_t(pool);
    const bool inside = offset >= 0 && size_t(offset) + 16 <= emulated::shared_bytes;
    if (offset % 16 || !inside)
        emulated::fail(emulated::in_line(place, line) + " of a row at byte " +
                       std::to_string(offset) + " of shared memory, which is " +
                       (inside ? "not aligned to 16 bytes" : "outside of the bytes asked for"));
    MatrixRows mine;
    memcpy(mine.row, row, sizeof mine.row);
    return mine;
}

// PTX ldmatrix.sync.aligned.m8n8.x4.shared.b16
inline void load_matrices(u32 (&r)[4], const void *row, int line = __builtin_LINE()) {
    const char *place = "load_matrices";
    MatrixRows mine = emulated_row(row, place, line);
    emulated::meet_warp<MatrixRows>(place, line, mine, [](MatrixRows *const *lanes) {
        for (int l = 0; l < emulated::WARP; ++l)
            for (int i = 0; i < 4; ++i) {
                const uint16_t *from = lanes[8 * i + l / 4]->row + 2 * (l % 4);
                lanes[l]->r[i] = from[0] | u32(from[1]) << 16;
            }
    });
    memcpy(r, mine.r, sizeof r);
}

// PTX ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
inline void load_matrices_turned(u32 (&r)[4], const void *row, int line = __builtin_LINE()) {
    const char *place = "load_matrices_turned";
    MatrixRows mine = emulated_row(row, place, line);
    emulated::meet_warp<MatrixRows>(place, line, mine, [](MatrixRows *const *lanes) {
        for (int l = 0; l < emulated::WARP; ++l)
            for (int i = 0; i < 4; ++i) {
                MatrixRows *const *from = lanes + 8 * i + 2 * (l % 4);
                lanes[l]->r[i] = from[0]->row[l / 4] | u32(from[1]->row[l / 4]) << 16;
            }
    });
    memcpy(r, mine.r, sizeof r);
}

struct Product {
    float (&d)[4];
    const u32 (&a)[4];
    u32 b[2];
};

// PTX mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
inline void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                     int line = __builtin_LINE()) {
    Product mine{d, a, {b0, b1}};
    emulated::meet_warp<Product>("multiply", line, mine, [](Product *const *lanes) {
        float a[16][16], b[16][8], d[16][8];
        for (int l = 0; l < emulated::WARP; ++l) {
            const int g = l / 4, pair = 2 * (l % 4);
            for (int i = 0; i < 4; ++i) {
                const int row = g + 8 * (i % 2), k = pair + 8 * (i / 2);
                a[row][k] = low(lanes[l]->a[i]);
                a[row][k + 1] = high(lanes[l]->a[i]);
                d[g + 8 * (i / 2)][pair + i % 2] = lanes[l]->d[i];
            }
            for (int i = 0; i < 2; ++i) {
                b[pair + 8 * i][g] = low(lanes[l]->b[i]);
                b[pair + 8 * i + 1][g] = high(lanes[l]->b[i]);
            }
        }
        for (int m = 0; m < 16; ++m)
            for (int k = 0; k < 16; ++k)
                for (int n = 0; n < 8; ++n) d[m][n] += a[m][k] * b[k][n];
        for (int l = 0; l < emulated::WARP; ++l)
            for (int i = 0; i < 4; ++i)
                lanes[l]->d[i] = d[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2];
    });
}

// g++ is told to check alignment and the bounds of arrays; it calls these with a place first.
struct CheckedPlace { const char *file; int line, column; };

extern "C" void __ubsan_handle_type_mismatch_v1_abort(CheckedPlace *at, void *address) {
    emulated::fail("misaligned access in " + emulated::in_line(at->file, at->line));
}

extern "C" void __ubsan_handle_out_of_bounds_abort(CheckedPlace *at, void *index) {
    emulated::fail("index " + std::to_string(intptr_t(index)) + " outside of an array in " +
                   emulated::in_line(at->file, at->line));
}
