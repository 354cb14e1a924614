// The two layers that read the maps before a wider stage: a 3x3 one and the shortcut, 1x1, which
// both go to every second pixel and write twice as many channels. The shortcut reads what the 3x3
// layer's middle tap does, so one kernel does both, forwards and backwards.
//
// To be compiled after blocks.cu. C are the channels that are read, 16 on maps of 32x32 or 32 on
// 16x16; the maps that are written have the shape of 2 C. Filters are (outputs, taps, inputs).

constexpr int MIDDLE = 4;  // tap of nine

// The shortcut's filter lies behind that of the 3x3 layer.
template <int C>
constexpr int widening_size = (TAPS + 1) * (2 * C + 1) * Shape<C>::chunks;

template <int C>
__device__ __forceinline__ uint4* shortcut_of(uint4* weights) {
  return weights + TAPS * (2 * C + 1) * Shape<C>::chunks;
}

// Pixel in shared memory, PARTED, that the first of nine taps reads for pixel i of a part of the
// wider maps. Neighbours read neighbours.
template <int C>
__device__ __forceinline__ int under(const Part<2 * C>& part, int i) {
  constexpr int padded = Shape<C>::padded;
  return (part.image * padded + 2 * part.row_of(i)) * padded + part.column_of(i);
}

// How far another tap is from there.
template <int C>
__device__ __forceinline__ constexpr int tap_from_first(int y, int x) {
  return y * Shape<C>::padded + parted<C>(x);
}

// total += every second pixel of the tile times the filter. COUNT is nine taps or the middle one.
template <int C, int COUNT>
__device__ __forceinline__ void convolve_second(
    float (&total)[Shape<2 * C>::tiles][Shape<2 * C>::columns][4], const uint4* tile,
    const uint4* weights, const Part<2 * C>& part) {
  using Wide = Shape<2 * C>;
  constexpr int pairs = Wide::columns / 2;
  const int lane = threadIdx.x % 32, start = under<C>(part, lane % 16);
#pragma unroll 1
  for (int k = 0; k < C / 16; k++) {
#pragma unroll 3
    for (int tap = 0; tap < COUNT; tap++) {
      u32 taps[pairs][4];
#pragma unroll
      for (int n = 0; n < pairs; n++) {
        const int row =
            filter_row<2 * C>(tap, part.output + 16 * n + lane / 16 * 8 + lane % 8);
        load_matrices(taps[n], weights + place<C>(row, 2 * k + lane / 8 % 2));
      }
      const int of_nine = COUNT == TAPS ? tap : MIDDLE;
      const int pixel = start + tap_from_first<C>(of_nine / 3, of_nine % 3);
#pragma unroll
      for (int t = 0; t < Wide::tiles; t++) {
        u32 values[4];
        const int rows = 2 * t * Wide::step;
        load_matrices(values,
                      tile + place<C>(pixel + rows * Shape<C>::padded, 2 * k + lane / 16));
#pragma unroll
        for (int n = 0; n < pairs; n++) {
          multiply(total[t][2 * n], values, taps[n][0], taps[n][1]);
          multiply(total[t][2 * n + 1], values, taps[n][2], taps[n][3]);
        }
      }
    }
  }
}

// Convolve maps by both layers and sum each one's raw and raw². The maps are there (PLAIN), or they
// are the end of the block before (ENDED), as in `forward`.
template <int C, int SOURCE>
__global__ void __launch_bounds__(64 * Shape<2 * C>::warps, 2)
widen(const uint4* __restrict__ source, const uint4* __restrict__ past, uint4* __restrict__ ended,
      const float* __restrict__ source_sums, const float* __restrict__ scale,
      const float* __restrict__ shift, float* __restrict__ running_mean,
      float* __restrict__ running_variance, const uint4* __restrict__ filter,
      const uint4* __restrict__ shortcut_filter, uint2* __restrict__ raw, float* __restrict__ sums,
      uint2* __restrict__ shortcut_raw, float* __restrict__ shortcut_sums, int images,
      double momentum, double epsilon) {
  using S = Shape<C>;
  using Wide = Shape<2 * C>;
  constexpr int IMAGES = 2, warps = IMAGES * Wide::warps;
  constexpr int at_once = C / 16;  // images that the registers can take
  using Images = Chunks<C, at_once, 32 * warps, PARTED>;
  float* factor = reinterpret_cast<float*>(pool);
  float* offset = factor + C;
  const Gathered<2 * C, warps> gathered = {offset + C};
  const Gathered<2 * C, warps> of_shortcut = {offset + C + 4 * SLOTS};
  uint4* weights = pool + C / 2 + 2 * SLOTS;
  uint4* shortcut_weights = shortcut_of<C>(weights);
  uint4* tile = weights + widening_size<C>;
  const int first = blockIdx.x * IMAGES;
  const int whole = images - first < IMAGES ? images - first : IMAGES;
  const float count = static_cast<float>(images) * S::pixels;

  uint4 values[Images::count], others[Images::count];
  const auto fetch = [&](int i) {
    const int from = (first + i) * Images::per_image;
    Images::fetch(values, source + from, whole - i);
    if (SOURCE == ENDED) Images::fetch(others, past + from, whole - i);
  };
  fetch(0);
  if (SOURCE == ENDED)
    load_norm<C>(factor, offset, source_sums, scale, shift, count, static_cast<float>(epsilon));
  load_filter<C, false, 2 * C>(weights, filter);
  load_filter<C, false, 2 * C, 1>(shortcut_weights, shortcut_filter);
  clear_border<C>(tile, IMAGES);
  __syncthreads();
  float factors[8], offsets[8];
  if (SOURCE == ENDED) {
    const int chunk = threadIdx.x % S::chunks;
    load_eight(factors, factor + 8 * chunk);
    load_eight(offsets, offset + 8 * chunk);
  }
#pragma unroll
  for (int i = 0; i < IMAGES; i += at_once) {
    const auto make = [&](int j) {
      if (SOURCE == PLAIN) return values[j];
      const uint4 sum = normed(values[j], factors, offsets, others[j]);
      if (Images::there(j, whole - i)) ended[(first + i) * Images::per_image + Images::at(j)] = sum;
      return sum;
    };
    Images::fill(tile, whole - i, make, i);
    if (i + at_once < IMAGES) fetch(i + at_once);
  }
  __syncthreads();

  const Part<2 * C> part(threadIdx.x / 32);
  {
    float total[Wide::tiles][Wide::columns][4] = {};
    convolve_second<C, TAPS>(total, tile, weights, part);
    write_raw(raw, gathered, total, part, first, whole);
  }
  {
    float total[Wide::tiles][Wide::columns][4] = {};
    convolve_second<C, 1>(total, tile, shortcut_weights, part);
    write_raw(shortcut_raw, of_shortcut, total, part, first, whole);
  }
  __syncthreads();
  gathered.add_to(sums);
  of_shortcut.add_to(shortcut_sums);
  if (SOURCE == ENDED && blockIdx.x == 0)
    move_statistics<C>(running_mean, running_variance, source_sums, count,
                       static_cast<float>(momentum));
}

// Bring a gradient of the wider maps, back through batch norm, into shared memory. `norm` has 2 C
// factors, then as many offsets and slopes.
template <class Images>
__device__ __forceinline__ void fill_through_norm(uint4* flow,
                                                  const uint4 (&gradient)[Images::count],
                                                  const uint4 (&raw)[Images::count],
                                                  const float* norm, int whole) {
  constexpr int chunks = Images::S::chunks;
  const int chunk = threadIdx.x % chunks;
  float factors[8], offsets[8], slopes[8];
  load_eight(factors, norm + 8 * chunk);
  load_eight(offsets, norm + 8 * (chunks + chunk));
  load_eight(slopes, norm + 8 * (2 * chunks + chunk));
  Images::fill(flow, whole, [&](int j) {
    return through_norm(gradient[j], raw[j], factors, offsets, slopes);
  });
}

// On the way back a warp does two rows of an image's wider maps, and all channels of those below.
template <int C>
constexpr int row_tiles = 2 / Shape<2 * C>::step;
template <int C>
constexpr int warps_back = Shape<2 * C>::side / 2;
template <int C>
constexpr int columns_back = C / 8;

// total += two rows of a gradient, `apart`, times one tap of a filter turned round.
template <int C>
__device__ __forceinline__ void add_tap(float (&total)[row_tiles<C>][columns_back<C>][4],
                                        const uint4* flow, int pixel, int apart,
                                        const uint4* weights, int tap) {
  constexpr int pairs = columns_back<C> / 2;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < 2 * C / 16; k++) {
    u32 taps[pairs][4];
#pragma unroll
    for (int n = 0; n < pairs; n++) {
      const int row = filter_row<2 * C>(tap, 16 * k + lane % 16);
      load_matrices_turned(taps[n], weights + place<C>(row, 2 * n + lane / 16));
    }
#pragma unroll
    for (int t = 0; t < row_tiles<C>; t++) {
      u32 values[4];
      load_matrices(values, flow + place<2 * C>(pixel + t * apart, 2 * k + lane / 16));
#pragma unroll
      for (int n = 0; n < pairs; n++) {
        multiply(total[t][2 * n], values, taps[n][0], taps[n][1]);
        multiply(total[t][2 * n + 1], values, taps[n][2], taps[n][3]);
      }
    }
  }
}

// Visit the pixels of the maps below in rows and columns that are odd or even, that lie under a
// warp's two rows, four channels at a time: visit(t, half, n, at, inside, four), where t and half
// are those of a product of matrices, and the rest as in `visit_fours`.
template <int C, class Visit>
__device__ __forceinline__ void visit_second(const Part<2 * C>& part, int first, int row_is_odd,
                                             int column_is_odd, Visit visit) {
  using S = Shape<C>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int t = 0; t < row_tiles<C>; t++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int i = lane / 4 + 8 * half;
      const int row = 2 * (part.row_of(i) + t) + row_is_odd;
      const int column = 2 * part.column_of(i) + column_is_odd;
      const int pixel = ((first + part.image) * S::side + row) * S::side + column;
      const int inside = under<C>(part, i) + 2 * t * S::padded +
                         tap_from_first<C>(1 + row_is_odd, 1 + column_is_odd);
#pragma unroll
      for (int n = 0; n < columns_back<C> / 2; n++) {
        const int four = 4 * n + lane % 4;
        visit(t, half, n, pixel * (C / 4) + four, inside, four);
      }
    }
  }
}

// Take both gradients back through the filters and the ReLU below, write that, where an image is
// there, and sum out and out × below. Rows and columns of the maps below are even or odd: where
// both are even, a pixel was read by the middle tap and by the shortcut; an odd row or column was
// read by the tap after the middle, and by the one before it for the next place.
template <int C>
__device__ __forceinline__ void gradient_of_maps(
    float (&sum)[columns_back<C> / 2][4], float (&products)[columns_back<C> / 2][4],
    const uint4* flow, const uint4* shortcut_flow, uint4* weights, const uint4* source,
    const Part<2 * C>& part, const uint2* below, uint2* out, int first, bool there) {
  using S = Shape<C>;
  using Wide = Shape<2 * C>;
  const int i = threadIdx.x % 16;
  const int pixel = part.inside(i);
  const int bare = (part.image * Wide::side + part.row_of(i)) * Wide::side + part.column_of(i);
  float total[4][row_tiles<C>][columns_back<C>][4] = {}, past[row_tiles<C>][columns_back<C>][4] = {};
#pragma unroll
  for (int odd = 0; odd < 4; odd++) {
    const int row_is_odd = odd / 2, column_is_odd = odd % 2;
#pragma unroll
    for (int down = 0; down <= row_is_odd; down++) {
#pragma unroll
      for (int right = 0; right <= column_is_odd; right++) {
        const int tap = 3 * (1 + row_is_odd - 2 * down) + 1 + column_is_odd - 2 * right;
        const int from = pixel + down * Wide::padded + right;
        add_tap<C>(total[odd], flow, from, Wide::padded, weights, tap);
      }
    }
  }
  add_tap<C>(past, shortcut_flow, bare, Wide::side, shortcut_of<C>(weights), 0);
  if (!there) return;
#pragma unroll
  for (int odd = 0; odd < 4; odd++) {
    visit_second<C>(part, first, odd / 2, odd % 2, [&](int t, int half, int n, int at, int inside,
                                                       int four) {
      float on[4], before[4], more[4] = {};
      unpack(on, reinterpret_cast<const uint2*>(
                     source)[2 * place<C>(inside, four / 2) + four % 2]);
      unpack(before, below[at]);
      if (odd == 0) {  // rounded before it is added, as a gradient in memory is
        const float *left = past[t][2 * n] + 2 * half, *right = past[t][2 * n + 1] + 2 * half;
        unpack(more, uint2{packed(left[0], left[1]), packed(right[0], right[1])});
      }
      float stopped[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float value = total[odd][t][2 * n + e / 2][2 * half + e % 2] + more[e];
        stopped[e] = on[e] > 0.0f ? value : 0.0f;
      }
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
}

// filter gradients += sum over sixteen pixels of (gradient)^T (pixels that a tap reads) for sixteen
// channels of each; behind the nine taps that of the shortcut.
template <int C>
__device__ __forceinline__ void gradient_of_filters(float (&total)[TAPS + 1][2][4],
                                                    const uint4* flow, int pixel,
                                                    const uint4* shortcut_flow, int shortcut_pixel,
                                                    const uint4* source, int start, int output,
                                                    int input) {
  const int lane = threadIdx.x % 32;
  const int flow_chunk = output / 8 + lane / 8 % 2, source_chunk = input / 8 + lane / 16;
  u32 gradient[4];
  load_matrices_turned(gradient, flow + place<2 * C>(pixel, flow_chunk));
#pragma unroll
  for (int tap = 0; tap < TAPS; tap++) {
    u32 read[4];
    load_matrices_turned(
        read, source + place<C>(start + tap_from_first<C>(tap / 3, tap % 3), source_chunk));
    multiply(total[tap][0], gradient, read[0], read[1]);
    multiply(total[tap][1], gradient, read[2], read[3]);
    if (tap == MIDDLE) {
      u32 past[4];
      load_matrices_turned(past, shortcut_flow + place<2 * C>(shortcut_pixel, flow_chunk));
      multiply(total[TAPS][0], past, read[0], read[1]);
      multiply(total[TAPS][1], past, read[2], read[3]);
    }
  }
}

// Take the gradients of both layers back through batch norm, filters, and the ReLU below: one
// gradient of the maps below, with the sums of out and out × below. Every block of threads has the
// filters' gradients of its own, as in `backward`: the 3x3 layer's, then the shortcut's.
template <int C, int IMAGES>
__global__ void __launch_bounds__(32 * warps_back<C> * IMAGES, 16 / (warps_back<C> * IMAGES))
widen_back(const uint4* __restrict__ gradient, const uint4* __restrict__ raw,
           const float* __restrict__ sums, const float* __restrict__ gradient_sums,
           const float* __restrict__ scale, const uint4* __restrict__ filter,
           const uint4* __restrict__ shortcut_gradient, const uint4* __restrict__ shortcut_raw,
           const float* __restrict__ shortcut_sums,
           const float* __restrict__ shortcut_gradient_sums,
           const float* __restrict__ shortcut_scale, const uint4* __restrict__ shortcut_filter,
           const uint4* __restrict__ activations, const uint2* __restrict__ below,
           uint2* __restrict__ out, float* __restrict__ out_sums,
           float* __restrict__ filter_gradients, float* __restrict__ scale_gradient,
           float* __restrict__ shift_gradient, float* __restrict__ shortcut_scale_gradient,
           float* __restrict__ shortcut_shift_gradient, int images, double epsilon) {
  using S = Shape<C>;
  using Wide = Shape<2 * C>;
  constexpr int warps = warps_back<C> * IMAGES, threads = 32 * warps;
  using Flow = Chunks<2 * C, IMAGES, threads>;
  using ShortcutFlow = Chunks<2 * C, IMAGES, threads, BARE>;
  using Images = Chunks<C, IMAGES, threads, PARTED>;
  float* norm = reinterpret_cast<float*>(pool);
  float* shortcut_norm = norm + 6 * C;
  const Gathered<C, warps, columns_back<C>> gathered = {norm + 12 * C};
  uint4* weights = pool + 3 * C + 2 * SLOTS;
  uint4* shortcut_weights = shortcut_of<C>(weights);
  uint4* flow = weights + widening_size<C>;
  uint4* shortcut_flow = flow + IMAGES * Wide::area * Wide::chunks;
  uint4* source = shortcut_flow + IMAGES * Wide::pixels * Wide::chunks;
  const int first = blockIdx.x * IMAGES;
  const int whole = images - first < IMAGES ? images - first : IMAGES;
  const float count = static_cast<float>(images) * Wide::pixels;
  const float small = static_cast<float>(epsilon);

  {
    const int from = first * Flow::per_image;
    uint4 g[Flow::count], z[Flow::count], past_g[Flow::count], past_z[Flow::count];
    Flow::fetch(g, gradient + from, whole);
    Flow::fetch(z, raw + from, whole);
    Flow::fetch(past_g, shortcut_gradient + from, whole);
    Flow::fetch(past_z, shortcut_raw + from, whole);
    uint4 values[Images::count];
    Images::fetch(values, activations + first * Images::per_image, whole);
    load_norm_back<2 * C>(norm, norm + 2 * C, norm + 4 * C, sums, gradient_sums, scale, count,
                          small, scale_gradient, shift_gradient);
    load_norm_back<2 * C>(shortcut_norm, shortcut_norm + 2 * C, shortcut_norm + 4 * C,
                          shortcut_sums, shortcut_gradient_sums, shortcut_scale, count, small,
                          shortcut_scale_gradient, shortcut_shift_gradient);
    load_filter<C, true, 2 * C>(weights, filter);
    load_filter<C, true, 2 * C, 1>(shortcut_weights, shortcut_filter);
    clear_border<2 * C>(flow, IMAGES);
    clear_border<C>(source, IMAGES);
    Images::fill(source, whole, [&](int j) { return values[j]; });
    __syncthreads();
    fill_through_norm<Flow>(flow, g, z, norm, whole);
    fill_through_norm<ShortcutFlow>(shortcut_flow, past_g, past_z, shortcut_norm, whole);
  }
  __syncthreads();

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  {
    Part<2 * C> part(0);
    part.image = warp / warps_back<C>;
    part.row = warp % warps_back<C> * 2;
    float sum[columns_back<C> / 2][4] = {}, products[columns_back<C> / 2][4] = {};
    gradient_of_maps<C>(sum, products, flow, shortcut_flow, weights, source, part, below, out,
                        first, part.image < whole);
    gathered.write(sum, 0);
    gathered.write(products, 1);
  }

  // Sixteen by sixteen channels of the filters are a warp's; the others of its set do the same
  // channels for other pixels, sixteen at a time.
  constexpr int sets = (2 * C / 16) * (C / 16), shares = warps / sets;
  constexpr int sixteens = Wide::pixels / 16, per_share = IMAGES * sixteens / shares;
  const int set = warp % sets, share = warp / sets;
  const int output = set / (C / 16) * 16, input = set % (C / 16) * 16;
  float total[TAPS + 1][2][4] = {};
#pragma unroll 1
  for (int s = share * per_share; s < (share + 1) * per_share; s++) {
    Part<2 * C> part(0);
    part.image = s / sixteens;
    part.row = s % sixteens * Wide::step;
    const int flow_pixel = lane / 16 * 8 + lane % 8;
    gradient_of_filters<C>(total, flow, part.inside(flow_pixel), shortcut_flow,
                           16 * s + flow_pixel, source, under<C>(part, lane % 16), output, input);
  }
  __syncthreads();
  gathered.add_to(out_sums);
  add_shares<sets, shares>(total, reinterpret_cast<float*>(weights), set, share);
  if (share > 0) return;
  float* mine = filter_gradients + blockIdx.x * (TAPS + 1) * 2 * C * C;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int c = input + 8 * half;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++)
      write_tap(mine + (output * TAPS + tap) * C + c, TAPS * C, total[tap][half]);
    write_tap(mine + TAPS * 2 * C * C + output * C + c, C, total[TAPS][half]);
  }
}
