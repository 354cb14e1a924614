// The 3x3 layers of a small residual network that write as many channels as they read: 16 on maps
// of 32x32, 32 on 16x16, 64 on 8x8. A block of threads has whole images in shared memory, so that
// every value comes from memory once, not once for each of nine taps, and batch norm and ReLU are
// done on the way in. Going back, one kernel makes the gradients of the maps and of the filter.
//
// Maps are (images, side, side, C) in bfloat16, filters (outputs, 3, 3, inputs), sums (2 C) in
// float32. In shared memory an image has a border of zeros.

#ifdef __CUDACC__
using u32 = unsigned int;

// Four 8x8 matrices: thread l gives the address of row l % 8 of matrix l / 8, and gets the
// elements (l / 4, 2 (l % 4)) and the next one of each.
__device__ __forceinline__ void load_matrices(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<u32>(__cvta_generic_to_shared(row))));
}

// The same, each matrix turned over its diagonal.
__device__ __forceinline__ void load_matrices_turned(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<u32>(__cvta_generic_to_shared(row))));
}

// d (16x8) += a (16x16) b (16x8).
__device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// As PyTorch's it leaves what is no number, where fmaxf gives 0: a loss must show it.
__device__ __forceinline__ float relu(float x) {
  float clipped;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(clipped) : "f"(x));
  return clipped;
}

__device__ __forceinline__ u32 packed(float first, float second) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
#endif

extern __shared__ uint4 pool[];

// What a convolution reads: maps as they are, or those of the layer below through batch norm and
// ReLU (a block's second layer). A block's first layer also writes what it has made: the stem's maps
// through batch norm and ReLU, or the end of the block before. The past that is added there is maps
// (ENDED) or a shortcut's, which go through a batch norm of their own (JOINED).
enum Source { PLAIN, NORMALISED, STARTED, ENDED, JOINED };

constexpr int TAPS = 9;
constexpr int SLOTS = 256;  // of 16 bytes, for a block's sums

template <int C>
struct Shape {
  static constexpr int side = 512 / C;
  static constexpr int padded = side + 2;
  static constexpr int pixels = side * side;
  static constexpr int area = padded * padded;  // pixels in shared memory
  static constexpr int chunks = C / 8;          // of eight channels, 16 bytes
  static constexpr int step = side < 16 ? 2 : 1;  // rows that sixteen pixels take
  static constexpr int tiles = C == 64 ? 2 : 4;   // times sixteen pixels that a warp does
  static constexpr int columns = 2;              // times eight channels that it writes
  static constexpr int warps = C == 16 ? 16 : 8;  // that share an image
};

// Where a chunk of a pixel lies in shared memory: eight neighbours' are in eight different places
// of 128 bytes, or the banks would serve them one after the other.
template <int C>
__device__ __forceinline__ int place(int pixel, int chunk) {
  constexpr int chunks = Shape<C>::chunks;
  return pixel * chunks + (chunk ^ (pixel / (8 / chunks) % chunks));
}

// What a warp works on: sixteen pixels at a time, from this image, row and column on.
template <int C>
struct Part {
  int image, row, column, output;

  __device__ __forceinline__ explicit Part(int warp) {
    constexpr int side = Shape<C>::side;
    image = warp / Shape<C>::warps;
    const int rest = warp % Shape<C>::warps;
    constexpr int apart = C / 16;  // warps that write different channels of the same pixels
    column = side > 16 ? rest % 2 * 16 : 0;
    row = (side > 16 ? rest / 2 : rest / apart) * 4;
    output = rest % apart * 16;
  }

  __device__ __forceinline__ int row_of(int i) const {
    return Shape<C>::side < 16 ? row + i / 8 : row;
  }

  __device__ __forceinline__ int column_of(int i) const {
    return Shape<C>::side < 16 ? i % 8 : column + i;
  }

  // Of pixel i of the first sixteen, in shared memory.
  __device__ __forceinline__ int inside(int i) const {
    constexpr int padded = Shape<C>::padded;
    return (image * padded + row_of(i) + 1) * padded + column_of(i) + 1;
  }
};

template <int C>
__device__ __forceinline__ void clear_border(uint4* tile, int images) {
  constexpr int padded = Shape<C>::padded, chunks = Shape<C>::chunks;
  constexpr int border = 4 * padded - 4;
  for (int i = threadIdx.x; i < images * border * chunks; i += blockDim.x) {
    const int at = i / chunks % border, image = i / chunks / border;
    int row, column;
    if (at < 2 * padded) {
      row = at / padded * (padded - 1);
      column = at % padded;
    } else {
      row = (at - 2 * padded) / 2 + 1;
      column = at % 2 * (padded - 1);
    }
    const int pixel = (image * padded + row) * padded + column;
    tile[place<C>(pixel, i % chunks)] = uint4{0, 0, 0, 0};
  }
}

// Rows of a filter in shared memory: one more per tap, so that taps lie in different banks.
template <int C>
__device__ __forceinline__ int filter_row(int tap, int row) {
  return tap * (C + 1) + row;
}

template <int C>
constexpr int filter_size = TAPS * (C + 1) * Shape<C>::chunks;

// Bring a filter into shared memory, tap by tap. The channels that are written are reordered
// within sixteen, so that a thread of `multiply` has four neighbours: 4 q + 2 j + e, where it has
// e of its pair q in matrix j.
template <int C, bool BACK, int OUTPUTS = C, int COUNT = TAPS>
__device__ __forceinline__ void load_filter(uint4* weights, const uint4* from) {
  constexpr int sixteens = C / 16, count = OUTPUTS * COUNT * sixteens;
  constexpr int at_once = count > 256 ? 4 : 1;  // so that memory is waited for seldom
  for (int start = threadIdx.x; start < count; start += at_once * blockDim.x) {
    uint4 values[at_once][2];
    int which[at_once];
#pragma unroll
    for (int j = 0; j < at_once; j++) {
      // Past the end the last one is brought again, to the same place.
      const int next = start + j * blockDim.x;
      which[j] = next < count ? next : count - 1;
      values[j][0] = from[2 * which[j]];
      values[j][1] = from[2 * which[j] + 1];
    }
#pragma unroll
    for (int j = 0; j < at_once; j++) {
      const uint4 a = values[j][0], b = values[j][1];
      const int sixteen = which[j] % sixteens;
      const int tap = which[j] / sixteens % COUNT, output = which[j] / sixteens / COUNT;
      if (BACK) {
        const int row = filter_row<OUTPUTS>(tap, output);
        weights[place<C>(row, 2 * sixteen)] = uint4{a.x, a.z, b.x, b.z};
        weights[place<C>(row, 2 * sixteen + 1)] = uint4{a.y, a.w, b.y, b.w};
      } else {
        const int o = output % 16;
        const int row = filter_row<OUTPUTS>(tap, output - o + o / 2 % 2 * 8 + o / 4 * 2 + o % 2);
        weights[place<C>(row, 2 * sixteen)] = a;
        weights[place<C>(row, 2 * sixteen + 1)] = b;
      }
    }
  }
}

// total += the tile's pixels times the filter; BACK turns the filter round. A row of pixels is
// loaded once for the three rows of taps that it meets.
template <int C, bool BACK>
__device__ __forceinline__ void convolve(float (&total)[Shape<C>::tiles][Shape<C>::columns][4],
                                         const uint4* tile, const uint4* weights, int start,
                                         int output) {
  constexpr int step = Shape<C>::step, tiles = Shape<C>::tiles, pairs = Shape<C>::columns / 2;
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int k = 0; k < C / 16; k++) {
#pragma unroll 1
    for (int x = 0; x < 3; x++) {
      u32 taps[3][pairs][4];
#pragma unroll
      for (int y = 0; y < 3; y++) {
        const int tap = BACK ? 8 - 3 * y - x : 3 * y + x;
#pragma unroll
        for (int n = 0; n < pairs; n++) {
          if (BACK) {
            const int row = filter_row<C>(tap, 16 * k + lane % 16);
            load_matrices_turned(
                taps[y][n], weights + place<C>(row, output / 8 + 2 * n + lane / 16));
          } else {
            const int row = filter_row<C>(tap, output + 16 * n + lane / 16 * 8 + lane % 8);
            load_matrices(taps[y][n], weights + place<C>(row, 2 * k + lane / 8 % 2));
          }
        }
      }
#pragma unroll
      for (int q = -1; q <= step * (tiles - 1) + 1; q++) {
        u32 values[4];
        const int pixel = start + q * Shape<C>::padded + x - 1;
        load_matrices(values, tile + place<C>(pixel, 2 * k + lane / 16));
#pragma unroll
        for (int y = 0; y < 3; y++) {
          const int above = q + 1 - y;
          if (above < 0 || above % step || above / step >= tiles) continue;
#pragma unroll
          for (int n = 0; n < pairs; n++) {
            multiply(total[above / step][2 * n], values, taps[y][n][0], taps[y][n][1]);
            multiply(total[above / step][2 * n + 1], values, taps[y][n][2], taps[y][n][3]);
          }
        }
      }
    }
  }
}

// How images lie in shared memory: with a border of zeros; so too, but in each row the even columns
// before the odd ones, so that every second one has the next beside it; or as in memory.
enum Layout { BORDERED, PARTED, BARE };

// Where a column is, counted from the border, in a row that is PARTED.
template <int C>
__device__ __forceinline__ constexpr int parted(int column) {
  return column % 2 * (Shape<C>::padded / 2) + column / 2;
}

// The chunks of a block's images, of which `whole` are there: thread by thread, its j-th.
template <int C, int IMAGES, int THREADS = 32 * Shape<C>::warps * IMAGES, int LAYOUT = BORDERED>
struct Chunks {
  using S = Shape<C>;
  static constexpr int threads = THREADS;
  static constexpr int count = IMAGES * S::pixels * S::chunks / threads;
  static constexpr int per_image = S::pixels * S::chunks;

  __device__ __forceinline__ static int at(int j) { return threadIdx.x + j * threads; }

  __device__ __forceinline__ static bool there(int j, int whole) { return at(j) / per_image < whole; }

  // `image` is the number of the first image among all in shared memory.
  __device__ __forceinline__ static int inside(int j, int image = 0) {
    const int pixel = at(j) / S::chunks, chunk = at(j) % S::chunks;
    if (LAYOUT == BARE) return place<C>(image * S::pixels + pixel, chunk);
    const int row = (image + pixel / S::pixels) * S::padded + pixel % S::pixels / S::side + 1;
    const int column = pixel % S::side + 1;
    return place<C>(row * S::padded + (LAYOUT == PARTED ? parted<C>(column) : column), chunk);
  }

  // All at once, so that memory is waited for once.
  __device__ __forceinline__ static void fetch(uint4 (&into)[count], const uint4* from, int whole) {
#pragma unroll
    for (int j = 0; j < count; j++)
      into[j] = there(j, whole) ? from[at(j)] : uint4{0, 0, 0, 0};
  }

  // Chunks that are not there are made too: were that left out, the compiler would move what was
  // fetched behind the question, and wait for one chunk after the other.
  template <class Make>
  __device__ __forceinline__ static void fill(uint4* tile, int whole, Make make, int image = 0) {
#pragma unroll
    for (int j = 0; j < count; j++) {
      const uint4 made = make(j);
      tile[inside(j, image)] = there(j, whole) ? made : uint4{0, 0, 0, 0};
    }
  }
};

// Visit what a thread has of a convolution, four channels at a time: visit(n, at, inside, four,
// values), where the four channels from 4 `four` on are the n-th, `at` is their place in maps, in
// fours, and `inside` the pixel's in shared memory.
template <int C, class Visit>
__device__ __forceinline__ void visit_fours(
    const float (&total)[Shape<C>::tiles][Shape<C>::columns][4], const Part<C>& part, int first,
    Visit visit) {
  using S = Shape<C>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int t = 0; t < S::tiles; t++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int i = lane / 4 + 8 * half;
      const int row = part.row_of(i) + t * S::step;
      const int pixel = ((first + part.image) * S::side + row) * S::side + part.column_of(i);
      const int inside = part.inside(i) + t * S::step * S::padded;
#pragma unroll
      for (int n = 0; n < S::columns / 2; n++) {
        const int four = part.output / 4 + 4 * n + lane % 4;
        const float values[4] = {total[t][2 * n][2 * half], total[t][2 * n][2 * half + 1],
                                 total[t][2 * n + 1][2 * half], total[t][2 * n + 1][2 * half + 1]};
        visit(n, pixel * (C / 4) + four, inside, four, values);
      }
    }
  }
}

__device__ __forceinline__ void unpack(float (&into)[4], uint2 fours) {
  into[0] = low(fours.x);
  into[1] = high(fours.x);
  into[2] = low(fours.y);
  into[3] = high(fours.y);
}

// Sums over a block: each warp writes those of the channels it has, then all are added up.
template <int C, int WARPS, int COLUMNS = Shape<C>::columns>
struct Gathered {
  static constexpr int width = 8 * COLUMNS;
  static constexpr int apart = C / width;  // every so many warps one has the same channels
  float* slots;

  __device__ __forceinline__ void write(const float (&sums)[COLUMNS / 2][4], int which) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int n = 0; n < COLUMNS / 2; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float sum = sums[n][e];
        sum += __shfl_xor_sync(0xffffffffu, sum, 4);
        sum += __shfl_xor_sync(0xffffffffu, sum, 8);
        sum += __shfl_xor_sync(0xffffffffu, sum, 16);
        if (lane < 4) slots[(2 * warp + which) * width + 16 * n + 4 * lane + e] = sum;
      }
    }
  }

  __device__ __forceinline__ void add_to(float* sums) const {
    for (int i = threadIdx.x; i < 2 * C; i += blockDim.x) {
      const int which = i / C, c = i % C;
      float total = 0.0f;
#pragma unroll
      for (int warp = 0; warp < WARPS; warp += apart)
        total += slots[(2 * (warp + c / width) + which) * width + c % width];
      atomicAdd(sums + i, total);
    }
  }
};

__device__ __forceinline__ void load_eight(float (&into)[8], const float* from) {
#pragma unroll
  for (int e = 0; e < 8; e++) into[e] = from[e];
}

// Two bfloat16 numbers through batch norm, plus others, and ReLU.
__device__ __forceinline__ u32 normed(u32 pair, const float* factor, const float* offset,
                                      u32 added = 0) {
  const float first = low(pair) * factor[0] + offset[0] + low(added);
  const float second = high(pair) * factor[1] + offset[1] + high(added);
  return packed(relu(first), relu(second));
}

__device__ __forceinline__ uint4 normed(uint4 value, const float (&factor)[8],
                                        const float (&offset)[8], uint4 added) {
  return uint4{normed(value.x, factor, offset, added.x),
               normed(value.y, factor + 2, offset + 2, added.y),
               normed(value.z, factor + 4, offset + 4, added.z),
               normed(value.w, factor + 6, offset + 6, added.w)};
}

// The same, where the others go through a batch norm of their own: `offset` is that of both.
__device__ __forceinline__ u32 joined(u32 pair, const float* factor, const float* offset, u32 added,
                                      const float* added_factor) {
  const float first = low(pair) * factor[0] + low(added) * added_factor[0] + offset[0];
  const float second = high(pair) * factor[1] + high(added) * added_factor[1] + offset[1];
  return packed(relu(first), relu(second));
}

// Sixteen factors and eight offsets would take too many registers: they stay in shared memory.
__device__ __forceinline__ uint4 joined(uint4 value, const float* factor, const float* offset,
                                        uint4 added, const float* added_factor) {
  return uint4{joined(value.x, factor, offset, added.x, added_factor),
               joined(value.y, factor + 2, offset + 2, added.y, added_factor + 2),
               joined(value.z, factor + 4, offset + 4, added.z, added_factor + 4),
               joined(value.w, factor + 6, offset + 6, added.w, added_factor + 6)};
}

// Two numbers of a gradient back through batch norm, whose input was `raw`.
__device__ __forceinline__ u32 through_norm(u32 gradient, u32 raw, const float* factor,
                                            const float* offset, const float* slope) {
  return packed(low(gradient) * factor[0] + offset[0] + low(raw) * slope[0],
                high(gradient) * factor[1] + offset[1] + high(raw) * slope[1]);
}

__device__ __forceinline__ uint4 through_norm(uint4 gradient, uint4 raw, const float (&factor)[8],
                                              const float (&offset)[8], const float (&slope)[8]) {
  return uint4{through_norm(gradient.x, raw.x, factor, offset, slope),
               through_norm(gradient.y, raw.y, factor + 2, offset + 2, slope + 2),
               through_norm(gradient.z, raw.z, factor + 4, offset + 4, slope + 4),
               through_norm(gradient.w, raw.w, factor + 6, offset + 6, slope + 6)};
}

struct Statistics {
  float mean, variance;

  // Of channel c, by the sums of all `count` values and of their squares.
  template <int C>
  __device__ __forceinline__ static Statistics of(const float* sums, int c, float count) {
    const float mean = sums[c] / count;
    return {mean, fmaxf(sums[C + c] / count - mean * mean, 0.0f)};
  }
};

// Batch norm as a factor and an offset per channel.
template <int C>
__device__ __forceinline__ void load_norm(float* factor, float* offset, const float* sums,
                                          const float* scale, const float* shift, float count,
                                          float epsilon) {
  for (int c = threadIdx.x; c < C; c += blockDim.x) {
    const Statistics found = Statistics::of<C>(sums, c, count);
    factor[c] = scale[c] * rsqrtf(found.variance + epsilon);
    offset[c] = shift[c] - found.mean * factor[c];
  }
}

// The way back through batch norm as a factor, an offset, and a slope by what it read, per channel.
// The first block of threads writes the gradients of its scale and shift.
template <int C>
__device__ __forceinline__ void load_norm_back(float* factor, float* offset, float* slope,
                                               const float* sums, const float* gradient_sums,
                                               const float* scale, float count, float epsilon,
                                               float* scale_gradient, float* shift_gradient) {
  for (int c = threadIdx.x; c < C; c += blockDim.x) {
    const Statistics found = Statistics::of<C>(sums, c, count);
    const float inverse = rsqrtf(found.variance + epsilon);
    const float summed = gradient_sums[c];
    const float product = (gradient_sums[C + c] - found.mean * summed) * inverse;
    factor[c] = scale[c] * inverse;
    slope[c] = -factor[c] * inverse * product / count;
    offset[c] = -factor[c] * summed / count - slope[c] * found.mean;
    if (blockIdx.x == 0) {
      scale_gradient[c] = product;
      shift_gradient[c] = summed;
    }
  }
}

template <int C>
__device__ __forceinline__ void move_statistics(float* running_mean, float* running_variance,
                                                const float* sums, float count, float momentum) {
  for (int c = threadIdx.x; c < C; c += blockDim.x) {
    const Statistics found = Statistics::of<C>(sums, c, count);
    const float unbiased = found.variance * (count / (count - 1.0f));
    running_mean[c] += momentum * (found.mean - running_mean[c]);
    running_variance[c] += momentum * (unbiased - running_variance[c]);
  }
}

// Write what was convolved, where an image is there, and sum it and its squares.
template <int C, int WARPS>
__device__ __forceinline__ void write_raw(
    uint2* raw, const Gathered<C, WARPS>& gathered,
    const float (&total)[Shape<C>::tiles][Shape<C>::columns][4], const Part<C>& part, int first,
    int whole) {
  using S = Shape<C>;
  float sum[S::columns / 2][4] = {}, squares[S::columns / 2][4] = {};
  visit_fours<C>(total, part, first, [&](int n, int at, int, int, const float (&values)[4]) {
    const uint2 out = {packed(values[0], values[1]), packed(values[2], values[3])};
    if (part.image < whole) raw[at] = out;
    float rounded[4];
    unpack(rounded, out);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      sum[n][e] += rounded[e];  // zeros, where there is no image
      squares[n][e] += rounded[e] * rounded[e];
    }
  });
  gathered.write(sum, 0);
  gathered.write(squares, 1);
}

// Convolve into `raw` and sum raw and raw². What is read, if not PLAIN, goes through the batch norm
// of the layer below, and its running statistics are moved; so are those of the shortcut where the
// `past` is its maps (JOINED). What a block's first layer has made is written to `ended`.
template <int C, int SOURCE, int IMAGES>
__global__ void __launch_bounds__(32 * Shape<C>::warps * IMAGES, 32 / (Shape<C>::warps * IMAGES))
forward(const uint4* __restrict__ source, const uint4* __restrict__ past, uint4* __restrict__ ended,
        const float* __restrict__ source_sums, const float* __restrict__ scale,
        const float* __restrict__ shift, float* __restrict__ running_mean,
        float* __restrict__ running_variance, const float* __restrict__ past_sums,
        const float* __restrict__ past_scale, const float* __restrict__ past_shift,
        float* __restrict__ past_mean, float* __restrict__ past_variance,
        const uint4* __restrict__ filter, uint2* __restrict__ raw, float* __restrict__ sums,
        int images, double momentum, double epsilon) {
  using S = Shape<C>;
  using Images = Chunks<C, IMAGES>;
  float* factor = reinterpret_cast<float*>(pool);
  float* offset = factor + C;
  // What is read is made before anything is summed, so the room for sums is free.
  float *past_factor = offset + C, *past_offset = offset + 2 * C;
  const Gathered<C, S::warps * IMAGES> gathered = {offset + C};
  uint4* weights = pool + C / 2 + SLOTS;
  uint4* tile = weights + filter_size<C>;
  const int first = blockIdx.x * IMAGES;
  const int whole = images - first < IMAGES ? images - first : IMAGES;
  const float count = static_cast<float>(images) * S::pixels;

  if (SOURCE != PLAIN)
    load_norm<C>(factor, offset, source_sums, scale, shift, count, static_cast<float>(epsilon));
  if (SOURCE == JOINED) {
    load_norm<C>(past_factor, past_offset, past_sums, past_scale, past_shift, count,
                 static_cast<float>(epsilon));
    for (int c = threadIdx.x; c < C; c += blockDim.x) offset[c] += past_offset[c];
  }
  load_filter<C, false>(weights, filter);
  clear_border<C>(tile, IMAGES);
  uint4 values[Images::count], others[Images::count];
  Images::fetch(values, source + first * Images::per_image, whole);
  if (SOURCE >= ENDED) Images::fetch(others, past + first * Images::per_image, whole);
  __syncthreads();
  float factors[8], offsets[8];
  const int chunk = threadIdx.x % S::chunks;
  if (SOURCE != PLAIN) {
    load_eight(factors, factor + 8 * chunk);
    load_eight(offsets, offset + 8 * chunk);
  }
  Images::fill(tile, whole, [&](int j) {
    if (SOURCE == PLAIN) return values[j];
    const uint4 added = SOURCE == ENDED ? others[j] : uint4{0, 0, 0, 0};
    const uint4 made = SOURCE == JOINED
                           ? joined(values[j], factor + 8 * chunk, offset + 8 * chunk, others[j],
                                    past_factor + 8 * chunk)
                           : normed(values[j], factors, offsets, added);
    if (SOURCE >= STARTED && Images::there(j, whole))
      ended[first * Images::per_image + Images::at(j)] = made;
    return made;
  });
  __syncthreads();

  const Part<C> part(threadIdx.x / 32);
  float total[S::tiles][S::columns][4] = {};
  convolve<C, false>(total, tile, weights, part.inside(threadIdx.x % 16), part.output);
  write_raw(raw, gathered, total, part, first, whole);
  __syncthreads();
  gathered.add_to(sums);
  if (SOURCE != PLAIN && blockIdx.x == 0)
    move_statistics<C>(running_mean, running_variance, source_sums, count,
                       static_cast<float>(momentum));
  if (SOURCE == JOINED && blockIdx.x == 0)
    move_statistics<C>(past_mean, past_variance, past_sums, count, static_cast<float>(momentum));
}

// Convolve and norm by the running statistics, plus `added` where ADD, then ReLU where CLIP.
template <int C, bool ADD, bool CLIP, int IMAGES>
__global__ void __launch_bounds__(32 * Shape<C>::warps * IMAGES, 32 / (Shape<C>::warps * IMAGES))
evaluate(const uint4* __restrict__ source, const uint4* __restrict__ filter,
         const float* __restrict__ scale, const float* __restrict__ shift,
         const float* __restrict__ running_mean, const float* __restrict__ running_variance,
         const uint2* __restrict__ added, uint2* __restrict__ out, int images, double epsilon) {
  using S = Shape<C>;
  using Images = Chunks<C, IMAGES>;
  float* factor = reinterpret_cast<float*>(pool);
  float* offset = factor + C;
  uint4* weights = pool + C / 2 + SLOTS;
  uint4* tile = weights + filter_size<C>;
  const int first = blockIdx.x * IMAGES;
  const int whole = images - first < IMAGES ? images - first : IMAGES;

  for (int c = threadIdx.x; c < C; c += blockDim.x) {
    factor[c] = scale[c] * rsqrtf(running_variance[c] + static_cast<float>(epsilon));
    offset[c] = shift[c] - running_mean[c] * factor[c];
  }
  load_filter<C, false>(weights, filter);
  clear_border<C>(tile, IMAGES);
  uint4 values[Images::count];
  Images::fetch(values, source + first * Images::per_image, whole);
  Images::fill(tile, whole, [&](int j) { return values[j]; });
  __syncthreads();

  const Part<C> part(threadIdx.x / 32);
  float total[S::tiles][S::columns][4] = {};
  convolve<C, false>(total, tile, weights, part.inside(threadIdx.x % 16), part.output);
  if (part.image >= whole) return;
  visit_fours<C>(total, part, first, [&](int, int at, int, int four, const float (&values)[4]) {
    // Rounded as in training, where these maps go through memory.
    float maps[4], more[4] = {};
    unpack(maps, uint2{packed(values[0], values[1]), packed(values[2], values[3])});
    if (ADD) unpack(more, added[at]);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      maps[e] = maps[e] * factor[4 * four + e] + offset[4 * four + e] + more[e];
      if (CLIP) maps[e] = relu(maps[e]);
    }
    out[at] = uint2{packed(maps[0], maps[1]), packed(maps[2], maps[3])};
  });
}

// filter gradient += sum over a warp's rows of (pixels of the gradient)^T (pixels of the source)
// for sixteen channels of the gradient and eight of the source. Pixels of the source stay, those of
// the gradient are shifted; two rows of the source are loaded at once.
template <int C>
__device__ __forceinline__ void gradient_of_filter(float (&total)[3][3][4], const uint4* flow,
                                                   const uint4* source, int turned, int start,
                                                   int rows, int output, int input) {
  constexpr int step = Shape<C>::step, padded = Shape<C>::padded, loaded = 2 / step;
  const int lane = threadIdx.x % 32, flow_chunk = output / 8 + lane / 8 % 2;
  const int second = lane / 16 * padded;
  u32 here[4], next[4];  // of the source: the row above and this one, the two below
  load_matrices_turned(here, source + place<C>(start - padded + second, input / 8));
#pragma unroll 1
  for (int r = 0; r < rows; r += loaded) {
    // Where a row of pixels is two of the image, the last has only one more below it.
    const int below = start + (r * step + 1) * padded;
    const int two = step == 2 && r + 1 == rows ? below : below + second;
    load_matrices_turned(next, source + place<C>(two, input / 8));
#pragma unroll
    for (int k = 0; k < loaded; k++) {
#pragma unroll
      for (int x = 0; x < 3; x++) {
        u32 values[4];
        const int pixel = turned + (r + k) * step * padded + x - 1;
        load_matrices_turned(values, flow + place<C>(pixel, flow_chunk));
        if (k == 0) {
          multiply(total[0][x], values, next[0], next[1]);
          multiply(total[1][x], values, here[2], here[3]);
          multiply(total[2][x], values, here[0], here[1]);
        } else {
          multiply(total[0][x], values, next[2], next[3]);
          multiply(total[1][x], values, next[0], next[1]);
          multiply(total[2][x], values, here[2], here[3]);
        }
      }
    }
#pragma unroll
    for (int e = 0; e < 4; e++) here[e] = next[e];
  }
}

// Add up what SHARES warps have of each of SETS parts of a filter, into the first of them. A warp
// has some channels of some taps.
template <int SETS, int SHARES, class Total>
__device__ __forceinline__ void add_shares(Total& total, float* exchange, int set, int share) {
  constexpr int OWN = sizeof(Total) / sizeof(float);
  float* flat = reinterpret_cast<float*>(&total);
#pragma unroll
  for (int rest = SHARES / 2; rest > 0; rest /= 2) {
    float* slot = exchange + (share % rest * SETS + set) * OWN * 32 + threadIdx.x % 32;
    if (share >= rest && share < 2 * rest) {
#pragma unroll
      for (int e = 0; e < OWN; e++) slot[32 * e] = flat[e];
    }
    __syncthreads();
    if (share < rest) {
#pragma unroll
      for (int e = 0; e < OWN; e++) flat[e] += slot[32 * e];
    }
    __syncthreads();
  }
}

// Write 16x8 channels of one tap of a filter's gradient, whose outputs lie `apart`. Neighbours
// exchange pairs, so that each has four channels in a row: the even one those of the first eight
// outputs, the odd one those of the others.
__device__ __forceinline__ void write_tap(float* gradient, int apart, const float (&own)[4]) {
  const int lane = threadIdx.x % 32;
  const bool odd = lane % 2;
  const float first = __shfl_xor_sync(0xffffffffu, odd ? own[0] : own[2], 1);
  const float second = __shfl_xor_sync(0xffffffffu, odd ? own[1] : own[3], 1);
  float* at = gradient + (lane / 4 + (odd ? 8 : 0)) * apart + lane % 4 / 2 * 4;
  *reinterpret_cast<float4*>(at) = odd ? float4{first, second, own[2], own[3]}
                                       : float4{own[0], own[1], first, second};
}

// Write 16x8 channels of a filter's gradient, from (output, input) on.
template <int C>
__device__ __forceinline__ void write_filter(float* filter_gradient, const float (&total)[3][3][4],
                                             int output, int input) {
#pragma unroll
  for (int y = 0; y < 3; y++) {
#pragma unroll
    for (int x = 0; x < 3; x++)
      write_tap(filter_gradient + (output * TAPS + 8 - 3 * y - x) * C + input, TAPS * C,
                total[y][x]);
  }
}

// Take a gradient back through batch norm, filter, and the ReLU and shortcut below. A block's
// FIRST layer reads `activations` (the maps below), adds `added` (the shortcut's gradient), and
// `below` are the maps before the batch norm below; its second layer's source is those through
// batch norm and ReLU. `out` is the gradient below, with the sums of out and out × below. Every
// block of threads has a filter's gradient of its own, to be added up: atomics would take longer
// than all the rest.
template <int C, bool FIRST, int IMAGES>
__global__ void __launch_bounds__(32 * Shape<C>::warps * IMAGES, 32 / (Shape<C>::warps * IMAGES))
backward(const uint4* __restrict__ gradient, const uint4* __restrict__ raw,
         const float* __restrict__ sums, const float* __restrict__ gradient_sums,
         const float* __restrict__ scale, const uint4* __restrict__ filter,
         const uint4* __restrict__ below, const float* __restrict__ below_sums,
         const float* __restrict__ below_scale, const float* __restrict__ below_shift,
         const uint4* __restrict__ activations, const uint2* __restrict__ added,
         uint2* __restrict__ out, float* __restrict__ out_sums, float* __restrict__ filter_gradient,
         float* __restrict__ scale_gradient, float* __restrict__ shift_gradient, int images,
         double epsilon) {
  using S = Shape<C>;
  using Images = Chunks<C, IMAGES>;
  float* factor = reinterpret_cast<float*>(pool);
  float *offset = factor + C, *slope = factor + 2 * C;
  float *below_factor = factor + 3 * C, *below_offset = factor + 4 * C;
  const Gathered<C, S::warps * IMAGES> gathered = {factor + 5 * C};
  uint4* weights = pool + C / 4 * 5 + SLOTS;
  uint4* flow = weights + filter_size<C>;
  uint4* source = flow + IMAGES * S::area * S::chunks;
  const int first = blockIdx.x * IMAGES;
  const int whole = images - first < IMAGES ? images - first : IMAGES;
  const float count = static_cast<float>(images) * S::pixels;

  load_norm_back<C>(factor, offset, slope, sums, gradient_sums, scale, count,
                    static_cast<float>(epsilon), scale_gradient, shift_gradient);
  if (!FIRST)
    load_norm<C>(below_factor, below_offset, below_sums, below_scale, below_shift, count,
                 static_cast<float>(epsilon));
  load_filter<C, true>(weights, filter);
  clear_border<C>(flow, IMAGES);
  clear_border<C>(source, IMAGES);
  const int chunk = threadIdx.x % S::chunks;
  {
    uint4 g[Images::count], z[Images::count];
    Images::fetch(g, gradient + first * Images::per_image, whole);
    Images::fetch(z, raw + first * Images::per_image, whole);
    __syncthreads();
    float factors[8], offsets[8], slopes[8];
    load_eight(factors, factor + 8 * chunk);
    load_eight(offsets, offset + 8 * chunk);
    load_eight(slopes, slope + 8 * chunk);
    Images::fill(flow, whole,
                 [&](int j) { return through_norm(g[j], z[j], factors, offsets, slopes); });
  }
  {
    uint4 values[Images::count];
    Images::fetch(values, (FIRST ? activations : below) + first * Images::per_image, whole);
    float factors[8], offsets[8];
    if (!FIRST) {
      load_eight(factors, below_factor + 8 * chunk);
      load_eight(offsets, below_offset + 8 * chunk);
    }
    Images::fill(source, whole, [&](int j) {
      return FIRST ? values[j] : normed(values[j], factors, offsets, uint4{0, 0, 0, 0});
    });
  }
  __syncthreads();

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Part<C> part(warp);
  {
    float total[S::tiles][S::columns][4] = {};
    convolve<C, true>(total, flow, weights, part.inside(lane % 16), part.output);
    float sum[S::columns / 2][4] = {}, products[S::columns / 2][4] = {};
    if (part.image < whole) {
      visit_fours<C>(total, part, first, [&](int n, int at, int inside, int four,
                                             const float (&values)[4]) {
        float on[4], before[4], more[4] = {};
        unpack(on, reinterpret_cast<const uint2*>(
                       source)[2 * place<C>(inside, four / 2) + four % 2]);
        unpack(before, reinterpret_cast<const uint2*>(below)[at]);
        if (FIRST) unpack(more, added[at]);
        float stopped[4];
#pragma unroll
        for (int e = 0; e < 4; e++) stopped[e] = on[e] > 0.0f ? values[e] + more[e] : 0.0f;
        const uint2 result = {packed(stopped[0], stopped[1]), packed(stopped[2], stopped[3])};
        out[at] = result;
        unpack(stopped, result);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          sum[n][e] += stopped[e];
          products[n][e] += stopped[e] * before[e];
        }
      });
    }
    gathered.write(sum, 0);
    gathered.write(products, 1);
  }

  // Sixteen by eight channels of the filter are a warp's; the others of its set do the same
  // channels for other pixels.
  constexpr int sets = (C / 16) * (C / 8), warps = S::warps * IMAGES, shares = warps / sets;
  const int set = warp % sets, share = warp / sets;
  const int output = set / (C / 8) * 16, input = set % (C / 8) * 8;
  float total[3][3][4] = {};
  // With 16 channels a share is a part of an image, with more it is whole images.
  constexpr int columns = S::side / 16 > 0 ? S::side / 16 : 1;
  constexpr int rows = C == 16 ? S::side * columns / shares : S::side / S::step;
  constexpr int images_per_share = C == 16 ? 1 : IMAGES / shares;
  const int flow_pixel = lane / 16 * 8 + lane % 8;
#pragma unroll 1
  for (int g = 0; g < images_per_share; g++) {
    Part<C> mine(0);
    if (C == 16) {
      mine.column = share % columns * 16;
      mine.row = share / columns * rows;
    } else {
      mine.image = share * images_per_share + g;
    }
    gradient_of_filter<C>(total, flow, source, mine.inside(flow_pixel), mine.inside(lane % 16),
                          rows, output, input);
  }
  __syncthreads();
  gathered.add_to(out_sums);
  add_shares<sets, shares>(total, reinterpret_cast<float*>(weights), set, share);
  if (share == 0)
    write_filter<C>(filter_gradient + blockIdx.x * C * C * TAPS, total, output, input);
}
