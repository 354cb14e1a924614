// The stem: a 3x3 layer that reads images, 3 colours of 32x32, and writes 16 channels. It follows
// the text of blocks.cu. A block of threads has one image, and rounds its colours to bfloat16 on
// the way in; nobody wants a gradient of images, so that the way back is the filter's gradient.
//
// Images are (images, side, side, 3) in float32, filters (16, 3, 3, 4): a pixel has a fourth
// colour, which is zero. Four neighbours are sixteen numbers, so that a row of taps is one product:
// its three and a fourth whose weights are zero.

// A pixel is eight bytes in shared memory, but what a row of a matrix starts with must be aligned
// to sixteen. So each pixel lies there twice: at its own place and as its left neighbour's second
// half. Eight rows in a row are in different banks.
template <int C>
struct Pixels {
  using S = Shape<C>;
  static constexpr int threads = 32 * S::warps;
  static constexpr int count = S::pixels / threads;

  __device__ __forceinline__ static void fetch(float (&into)[count][3], const float* image) {
#pragma unroll
    for (int j = 0; j < count; j++) {
#pragma unroll
      for (int colour = 0; colour < 3; colour++)
        into[j][colour] = image[3 * (threadIdx.x + j * threads) + colour];
    }
  }

  __device__ __forceinline__ static void clear(uint4* tile) {
    for (int i = threadIdx.x; i < S::area; i += threads) tile[i] = uint4{0, 0, 0, 0};
  }

  __device__ __forceinline__ static void fill(uint4* tile, const float (&values)[count][3]) {
    uint2* halves = reinterpret_cast<uint2*>(tile);
#pragma unroll
    for (int j = 0; j < count; j++) {
      const int pixel = threadIdx.x + j * threads;
      const int inside = (pixel / S::side + 1) * S::padded + pixel % S::side + 1;
      const uint2 colours = {packed(values[j][0], values[j][1]), packed(values[j][2], 0.0f)};
      halves[2 * inside] = colours;
      halves[2 * inside - 1] = colours;
    }
  }

  // What a thread gives the address of: of sixteen pixels, two from the first tap or the third on.
  __device__ __forceinline__ static int start(const Part<C>& part) {
    const int lane = threadIdx.x % 32;
    return part.inside(lane % 16) - S::padded - 1 + lane / 16 * 2;
  }
};

// What a thread has of a filter in `multiply`, by rows of taps. Channels that are written are
// reordered as in load_filter.
template <int C>
__device__ __forceinline__ void load_taps(u32 (&taps)[3][Shape<C>::columns][2],
                                          const u32* filter) {
  const int pair = threadIdx.x % 4, n = threadIdx.x % 32 / 4;
#pragma unroll
  for (int y = 0; y < 3; y++) {
#pragma unroll
    for (int j = 0; j < Shape<C>::columns; j++) {
      const int output = n / 2 * 4 + 2 * j + n % 2;
      const u32* row = filter + (output * TAPS + 3 * y) * 2;
      taps[y][j][0] = row[pair];
      taps[y][j][1] = pair < 2 ? row[4 + pair] : 0;
    }
  }
}

// Convolve images into `raw` and sum raw and raw².
template <int C>
__global__ void __launch_bounds__(32 * Shape<C>::warps, 2)
stem_forward(const float* __restrict__ images, const u32* __restrict__ filter,
             uint2* __restrict__ raw, float* __restrict__ sums) {
  using S = Shape<C>;
  using Image = Pixels<C>;
  const Gathered<C, S::warps> gathered = {reinterpret_cast<float*>(pool)};
  uint4* tile = pool + SLOTS;
  float values[Image::count][3];
  u32 taps[3][S::columns][2];
  Image::fetch(values, images + blockIdx.x * 3 * S::pixels);
  load_taps<C>(taps, filter);
  Image::clear(tile);
  __syncthreads();
  Image::fill(tile, values);
  __syncthreads();

  const Part<C> part(threadIdx.x / 32);
  const uint4* from = tile + Image::start(part);
  float total[S::tiles][S::columns][4] = {};
#pragma unroll
  for (int q = 0; q < S::tiles + 2; q++) {
    u32 row[4];
    load_matrices(row, from + q * S::padded);
#pragma unroll
    for (int y = 0; y < 3; y++) {
      if (q < y || q - y >= S::tiles) continue;
#pragma unroll
      for (int j = 0; j < S::columns; j++)
        multiply(total[q - y][j], row, taps[y][j][0], taps[y][j][1]);
    }
  }
  write_raw(raw, gathered, total, part, blockIdx.x, 1);
  __syncthreads();
  gathered.add_to(sums);
}

// Write the gradient of a filter: a row of taps is two times eight numbers, of which the last four
// are of no tap.
template <int C>
__device__ __forceinline__ void write_taps(float* filter_gradient, const float (&total)[3][2][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int y = 0; y < 3; y++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int x = 2 * j + lane % 4 / 2;
      if (x == 3) continue;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int output = lane / 4 + i / 2 * 8, colour = lane % 2 * 2 + i % 2;
        filter_gradient[(output * TAPS + 3 * y + x) * 4 + colour] = total[y][j][i];
      }
    }
  }
}

// Take a gradient back through batch norm to the filter's, in parts as in `backward`.
template <int C>
__global__ void __launch_bounds__(32 * Shape<C>::warps, 2)
stem_backward(const uint4* __restrict__ gradient, const uint4* __restrict__ raw,
              const float* __restrict__ sums, const float* __restrict__ gradient_sums,
              const float* __restrict__ scale, const float* __restrict__ images,
              float* __restrict__ filter_gradient, float* __restrict__ scale_gradient,
              float* __restrict__ shift_gradient, int count, double epsilon) {
  using S = Shape<C>;
  using Image = Pixels<C>;
  using Maps = Chunks<C, 1>;
  float* factor = reinterpret_cast<float*>(pool);
  float *offset = factor + C, *slope = factor + 2 * C;
  uint4* flow = pool + C / 4 * 3;
  uint4* tile = flow + S::area * S::chunks;
  uint4 g[Maps::count], z[Maps::count];
  float values[Image::count][3];
  Maps::fetch(g, gradient + blockIdx.x * Maps::per_image, 1);
  Maps::fetch(z, raw + blockIdx.x * Maps::per_image, 1);
  Image::fetch(values, images + blockIdx.x * 3 * S::pixels);
  load_norm_back<C>(factor, offset, slope, sums, gradient_sums, scale,
                    static_cast<float>(count) * S::pixels, static_cast<float>(epsilon),
                    scale_gradient, shift_gradient);
  Image::clear(tile);
  __syncthreads();
  float factors[8], offsets[8], slopes[8];
  const int chunk = threadIdx.x % S::chunks;
  load_eight(factors, factor + 8 * chunk);
  load_eight(offsets, offset + 8 * chunk);
  load_eight(slopes, slope + 8 * chunk);
  Maps::fill(flow, 1, [&](int j) { return through_norm(g[j], z[j], factors, offsets, slopes); });
  Image::fill(tile, values);
  __syncthreads();

  // A warp's rows of the gradient, each times the image's row above it, at it and below it.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Part<C> part(warp);
  const uint4* from = tile + Image::start(part);
  const int turned = part.inside(lane / 16 * 8 + lane % 8);
  float total[3][2][4] = {};
  u32 rows[3][4];
  load_matrices_turned(rows[0], from);
  load_matrices_turned(rows[1], from + S::padded);
#pragma unroll
  for (int r = 0; r < S::tiles; r++) {
    u32 pixels[4];
    load_matrices_turned(pixels, flow + place<C>(turned + r * S::padded, lane / 8 % 2));
    load_matrices_turned(rows[(r + 2) % 3], from + (r + 2) * S::padded);
#pragma unroll
    for (int y = 0; y < 3; y++) {
#pragma unroll
      for (int j = 0; j < 2; j++)
        multiply(total[y][j], pixels, rows[(r + y) % 3][2 * j], rows[(r + y) % 3][2 * j + 1]);
    }
  }
  __syncthreads();
  add_shares<1, S::warps>(total, reinterpret_cast<float*>(flow), 0, warp);
  if (warp == 0) write_taps<C>(filter_gradient + blockIdx.x * C * TAPS * 4, total);
}
