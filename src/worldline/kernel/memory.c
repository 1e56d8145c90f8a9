/* What is exported over whole stretches of memory: digests of leaves, copies, differences, zeros. */
#include "kernel.h"

static int best_level(void) {
#if WL_X86
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") ? 1 : 0;
#else
    return 0;
#endif
}

int wl_level = 0;

WL_API int wl_abi(void) { return WL_ABI; }

/* Uses `level`, or the machine's best where it has less; returns what is used. Not while another thread is inside. */
WL_API int wl_use(int level) {
    int best = best_level();
    wl_level = level < best ? level : best;
    return wl_level;
}

WL_API void wl_leaf_digests(const uint8_t *base, const int64_t *offsets, const int64_t *sizes, int64_t count,
                            uint8_t *out) {
    for (int64_t leaf = 0; leaf < count; leaf++)
        wl_xxh3_128(NULL, base + offsets[leaf], (size_t)sizes[leaf], out + WL_DIGEST_BYTES * leaf);
}

WL_API void wl_copy_digests(uint8_t *target, const uint8_t *base, const int64_t *offsets, const int64_t *sizes,
                            int64_t count, uint8_t *out) {
    for (int64_t leaf = 0; leaf < count; leaf++)
        wl_xxh3_128(target + offsets[leaf], base + offsets[leaf], (size_t)sizes[leaf], out + WL_DIGEST_BYTES * leaf);
}

#if WL_X86
static WL_AVX2 void copy_streamed(uint8_t *target, const uint8_t *source, size_t nbytes) {
    for (size_t at = 0; at < nbytes; at += 128) {
        const __m256i *from = (const __m256i *)(const void *)(source + at);
        __m256i *to = (__m256i *)(void *)(target + at);
        __m256i a = _mm256_loadu_si256(from), b = _mm256_loadu_si256(from + 1);
        __m256i c = _mm256_loadu_si256(from + 2), d = _mm256_loadu_si256(from + 3);
        WL_PREFETCH(source + at + 1024);
        WL_PREFETCH(source + at + 1088);
        _mm256_stream_si256(to, a);
        _mm256_stream_si256(to + 1, b);
        _mm256_stream_si256(to + 2, c);
        _mm256_stream_si256(to + 3, d);
    }
    _mm_sfence();
}

static WL_AVX2 int zero_avx2(const uint8_t *at, size_t nbytes) {
    for (size_t done = 0; done < nbytes; done += 128) {
        const __m256i *from = (const __m256i *)(const void *)(at + done);
        __m256i all = _mm256_or_si256(_mm256_or_si256(_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)),
                                      _mm256_or_si256(_mm256_loadu_si256(from + 2), _mm256_loadu_si256(from + 3)));
        if (!_mm256_testz_si256(all, all)) return 0;
    }
    return 1;
}
#endif

void wl_copy_once(uint8_t *target, const uint8_t *source, size_t nbytes) {
#if WL_X86
    if (wl_level > 0 && nbytes >= 4096) {
        size_t head = (32 - (uintptr_t)target % 32) % 32, body = (nbytes - head) / 128 * 128;
        memcpy(target, source, head);
        copy_streamed(target + head, source + head, body);
        memcpy(target + head + body, source + head + body, nbytes - head - body);
        return;
    }
#endif
    memcpy(target, source, nbytes);
}

int wl_is_zero(const uint8_t *at, size_t nbytes) {
    size_t done = 0;
#if WL_X86
    if (wl_level > 0) {
        done = nbytes / 128 * 128;
        if (!zero_avx2(at, done)) return 0;
    }
#endif
    for (; done + 8 <= nbytes; done += 8)
        if (wl_read64(at + done) != 0) return 0;
    for (; done < nbytes; done++)
        if (at[done] != 0) return 0;
    return 1;
}

/* The stretches must not overlap. */
WL_API void wl_copy(uint8_t *target, const uint8_t *source, int64_t nbytes) {
    wl_copy_once(target, source, (size_t)nbytes);
}

WL_API void wl_differences(const uint8_t *left, const uint8_t *right, int64_t nbytes, int64_t granule, uint8_t *out) {
    for (int64_t at = 0; at < nbytes; at += granule) {
        int64_t size = nbytes - at < granule ? nbytes - at : granule;
        *out++ = memcmp(left + at, right + at, (size_t)size) != 0;
    }
}

WL_API void wl_zeros(const uint8_t *base, int64_t nbytes, int64_t granule, uint8_t *out) {
    for (int64_t at = 0; at < nbytes; at += granule) {
        int64_t size = nbytes - at < granule ? nbytes - at : granule;
        *out++ = (uint8_t)wl_is_zero(base + at, (size_t)size);
    }
}
