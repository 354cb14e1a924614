// The last block's end and its means over all places, which are a network's features, and the way
// back. It follows the text of blocks.cu. A block of threads has one image; a thread has the same
// eight channels of some of its pixels.

__device__ __forceinline__ void unpack(float (&into)[8], uint4 eights) {
  const u32 pairs[4] = {eights.x, eights.y, eights.z, eights.w};
#pragma unroll
  for (int p = 0; p < 4; p++) {
    into[2 * p] = low(pairs[p]);
    into[2 * p + 1] = high(pairs[p]);
  }
}

// Sum what a warp's threads have, by channels, and write it to the warp's part of `slots`.
template <int C>
__device__ __forceinline__ void sum_over_image(float* slots, const float (&sums)[8]) {
  constexpr int chunks = Shape<C>::chunks;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int e = 0; e < 8; e++) {
    float sum = sums[e];
#pragma unroll
    for (int apart = chunks; apart < 32; apart *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (lane < chunks) slots[warp * C + 8 * lane + e] = sum;
  }
  __syncthreads();
}

template <int C>
__device__ __forceinline__ float summed(const float* slots, int c) {
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < Shape<C>::warps; warp++) total += slots[warp * C + c];
  return total;
}

// Norm `source` by the batch, whose running statistics are moved, add `past`, and take the means.
template <int C>
__global__ void __launch_bounds__(32 * Shape<C>::warps)
means(const uint4* __restrict__ source, const uint4* __restrict__ past,
      const float* __restrict__ sums, const float* __restrict__ scale,
      const float* __restrict__ shift, float* __restrict__ running_mean,
      float* __restrict__ running_variance, u32* __restrict__ out, int images, double momentum,
      double epsilon) {
  using S = Shape<C>;
  using Image = Chunks<C, 1>;
  float* factor = reinterpret_cast<float*>(pool);
  float *offset = factor + C, *slots = factor + 2 * C;
  const float count = static_cast<float>(images) * S::pixels;
  uint4 values[Image::count], others[Image::count];
  Image::fetch(values, source + blockIdx.x * Image::per_image, 1);
  Image::fetch(others, past + blockIdx.x * Image::per_image, 1);
  load_norm<C>(factor, offset, sums, scale, shift, count, static_cast<float>(epsilon));
  __syncthreads();
  float factors[8], offsets[8], total[8] = {};
  load_eight(factors, factor + 8 * (threadIdx.x % S::chunks));
  load_eight(offsets, offset + 8 * (threadIdx.x % S::chunks));
#pragma unroll
  for (int j = 0; j < Image::count; j++) {
    float maps[8], more[8];
    unpack(maps, values[j]);
    unpack(more, others[j]);
#pragma unroll
    for (int e = 0; e < 8; e++)  // rounded as maps are in memory
      total[e] += low(packed(maps[e] * factors[e] + offsets[e] + more[e], 0.0f));
  }
  sum_over_image<C>(slots, total);
  for (int i = threadIdx.x; i < C / 2; i += blockDim.x)
    out[blockIdx.x * (C / 2) + i] = packed(summed<C>(slots, 2 * i) / S::pixels,
                                           summed<C>(slots, 2 * i + 1) / S::pixels);
  if (blockIdx.x == 0)
    move_statistics<C>(running_mean, running_variance, sums, count, static_cast<float>(momentum));
}

// Spread a gradient of means over their places, and sum it and its products with `raw`. Whoever
// made that gradient may have put it anywhere, so that it is read number by number.
template <int C>
__global__ void __launch_bounds__(32 * Shape<C>::warps)
means_backward(const unsigned short* __restrict__ gradient, const uint4* __restrict__ raw,
               uint4* __restrict__ out, float* __restrict__ out_sums) {
  using S = Shape<C>;
  using Image = Chunks<C, 1>;
  float* slots = reinterpret_cast<float*>(pool);
  uint4 values[Image::count];
  Image::fetch(values, raw + blockIdx.x * Image::per_image, 1);
  float parts[8], total[8] = {};
  const int c = 8 * (threadIdx.x % S::chunks);
#pragma unroll
  for (int e = 0; e < 8; e++) parts[e] = low(gradient[blockIdx.x * C + c + e]) / S::pixels;
  const uint4 part = {packed(parts[0], parts[1]), packed(parts[2], parts[3]),
                      packed(parts[4], parts[5]), packed(parts[6], parts[7])};
  unpack(parts, part);
#pragma unroll
  for (int j = 0; j < Image::count; j++) {
    float maps[8];
    unpack(maps, values[j]);
#pragma unroll
    for (int e = 0; e < 8; e++) total[e] += parts[e] * maps[e];
    out[blockIdx.x * Image::per_image + Image::at(j)] = part;
  }
  sum_over_image<C>(slots, total);
  if (threadIdx.x < S::chunks) {
#pragma unroll
    for (int e = 0; e < 8; e++)
      atomicAdd(out_sums + c + e, parts[e] * S::pixels);
  }
  for (int i = threadIdx.x; i < C; i += blockDim.x)
    atomicAdd(out_sums + C + i, summed<C>(slots, i));
}
