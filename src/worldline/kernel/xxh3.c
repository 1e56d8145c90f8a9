/* XXH3-128, seed 0, default secret, after the published XXH3 specification. Equal to the xxhash wheel bit for bit. */
#include "kernel.h"

#define P32_1 0x9E3779B1U
#define P32_2 0x85EBCA77U
#define P32_3 0xC2B2AE3DU
#define P64_1 0x9E3779B185EBCA87ULL
#define P64_2 0xC2B2AE3D27D4EB4FULL
#define P64_3 0x165667B19E3779F9ULL
#define P64_4 0x85EBCA77C2B2AE63ULL
#define P64_5 0x27D4EB2F165667C5ULL
#define MX1 0x165667919E3779F9ULL
#define MX2 0x9FB21C651E98DF25ULL

enum { SECRET_BYTES = 192, STRIPE = 64, STRIPES = 16, BLOCK = STRIPE * STRIPES, AHEAD = 384 };

static const uint8_t SECRET[SECRET_BYTES] __attribute__((aligned(64))) = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static const uint64_t START[8] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};

WL_INLINE uint64_t avalanche(uint64_t x) {
    x ^= x >> 37;
    x *= MX1;
    return x ^ (x >> 32);
}

WL_INLINE uint64_t avalanche_of_xxh64(uint64_t x) {
    x ^= x >> 33;
    x *= P64_2;
    x ^= x >> 29;
    x *= P64_3;
    return x ^ (x >> 32);
}

WL_INLINE uint32_t swap32(uint32_t x) {
    return (x << 24) | ((x & 0xff00U) << 8) | ((x >> 8) & 0xff00U) | (x >> 24);
}

WL_INLINE uint64_t swap64(uint64_t x) { return ((uint64_t)swap32((uint32_t)x) << 32) | swap32((uint32_t)(x >> 32)); }

WL_INLINE wl_u128 multiply(uint64_t left, uint64_t right) {
    unsigned __int128 product = (unsigned __int128)left * right;
    return (wl_u128){(uint64_t)product, (uint64_t)(product >> 64)};
}

WL_INLINE uint64_t fold(uint64_t left, uint64_t right) {
    wl_u128 product = multiply(left, right);
    return product.low ^ product.high;
}

/* ------------------------------------------------------------------------------------------------- short inputs */

static wl_u128 of_1_to_3(const uint8_t *in, size_t n) {
    uint32_t low = ((uint32_t)in[0] << 16) | ((uint32_t)in[n >> 1] << 24) | in[n - 1] | ((uint32_t)n << 8);
    uint32_t swapped = swap32(low);
    uint32_t high = (swapped << 13) | (swapped >> 19);
    uint64_t flip_low = wl_read32(SECRET) ^ wl_read32(SECRET + 4);
    uint64_t flip_high = wl_read32(SECRET + 8) ^ wl_read32(SECRET + 12);
    return (wl_u128){avalanche_of_xxh64(low ^ flip_low), avalanche_of_xxh64(high ^ flip_high)};
}

static wl_u128 of_4_to_8(const uint8_t *in, size_t n) {
    uint64_t both = wl_read32(in) + ((uint64_t)wl_read32(in + n - 4) << 32);
    uint64_t keyed = both ^ (wl_read64(SECRET + 16) ^ wl_read64(SECRET + 24));
    wl_u128 m = multiply(keyed, P64_1 + (n << 2));
    m.high += m.low << 1;
    m.low ^= m.high >> 3;
    m.low ^= m.low >> 35;
    m.low *= MX2;
    m.low ^= m.low >> 28;
    m.high = avalanche(m.high);
    return m;
}

static wl_u128 of_9_to_16(const uint8_t *in, size_t n) {
    uint64_t flip_low = wl_read64(SECRET + 32) ^ wl_read64(SECRET + 40);
    uint64_t flip_high = wl_read64(SECRET + 48) ^ wl_read64(SECRET + 56);
    uint64_t first = wl_read64(in), last = wl_read64(in + n - 8);
    wl_u128 m = multiply(first ^ last ^ flip_low, P64_1);
    m.low += (uint64_t)(n - 1) << 54;
    last ^= flip_high;
    m.high += last + (uint64_t)(uint32_t)last * (P32_2 - 1);
    m.low ^= swap64(m.high);
    wl_u128 h = multiply(m.low, P64_2);
    h.high += m.high * P64_2;
    return (wl_u128){avalanche(h.low), avalanche(h.high)};
}

WL_INLINE uint64_t mix16(const uint8_t *in, const uint8_t *secret) {
    return fold(wl_read64(in) ^ wl_read64(secret), wl_read64(in + 8) ^ wl_read64(secret + 8));
}

WL_INLINE wl_u128 mix32(wl_u128 acc, const uint8_t *one, const uint8_t *two, const uint8_t *secret) {
    acc.low += mix16(one, secret);
    acc.low ^= wl_read64(two) + wl_read64(two + 8);
    acc.high += mix16(two, secret + 16);
    acc.high ^= wl_read64(one) + wl_read64(one + 8);
    return acc;
}

static wl_u128 of_17_to_240(const uint8_t *in, size_t n) {
    wl_u128 acc = {n * P64_1, 0};
    if (n <= 128) {
        for (size_t step = (n - 1) / 32 + 1; step-- > 0;)
            acc = mix32(acc, in + 16 * step, in + n - 16 * (step + 1), SECRET + 32 * step);
    } else {
        for (size_t at = 0; at < 128; at += 32) acc = mix32(acc, in + at, in + at + 16, SECRET + at);
        acc = (wl_u128){avalanche(acc.low), avalanche(acc.high)};
        for (size_t at = 128; at + 32 <= n; at += 32) acc = mix32(acc, in + at, in + at + 16, SECRET + 3 + at - 128);
        acc = mix32(acc, in + n - 16, in + n - 32, SECRET + 103);
    }
    uint64_t high = acc.low * P64_1 + acc.high * P64_4 + n * P64_2;
    return (wl_u128){avalanche(acc.low + acc.high), 0 - avalanche(high)};
}

static wl_u128 of_short(const uint8_t *in, size_t n) {
    if (n > 16) return of_17_to_240(in, n);
    if (n > 8) return of_9_to_16(in, n);
    if (n >= 4) return of_4_to_8(in, n);
    if (n > 0) return of_1_to_3(in, n);
    return (wl_u128){avalanche_of_xxh64(wl_read64(SECRET + 64) ^ wl_read64(SECRET + 72)),
                     avalanche_of_xxh64(wl_read64(SECRET + 80) ^ wl_read64(SECRET + 88))};
}

/* -------------------------------------------------------------------------------------------------- long inputs */

static void stripes_plain(uint64_t acc[8], const uint8_t *in, size_t count, const uint8_t *secret) {
    for (size_t stripe = 0; stripe < count; stripe++, in += STRIPE, secret += 8)
        for (int lane = 0; lane < 8; lane++) {
            uint64_t value = wl_read64(in + 8 * lane);
            uint64_t keyed = value ^ wl_read64(secret + 8 * lane);
            acc[lane ^ 1] += value;
            acc[lane] += (keyed & 0xffffffffU) * (keyed >> 32);
        }
}

static void scramble_plain(uint64_t acc[8]) {
    for (int lane = 0; lane < 8; lane++) {
        uint64_t x = acc[lane];
        x ^= x >> 47;
        x ^= wl_read64(SECRET + SECRET_BYTES - STRIPE + 8 * lane);
        acc[lane] = x * P32_1;
    }
}

static void blocks_plain(uint64_t acc[8], uint8_t *target, const uint8_t *in, size_t blocks) {
    for (size_t block = 0; block < blocks; block++, in += BLOCK) {
        if (target != NULL) memcpy(target + block * BLOCK, in, BLOCK);
        stripes_plain(acc, in, STRIPES, SECRET);
        scramble_plain(acc);
    }
}

#if WL_X86
#define LOAD(at) _mm256_loadu_si256((const __m256i *)(const void *)(at))

WL_INLINE WL_AVX2 __m256i half_stripe(__m256i acc, __m256i value, const uint8_t *secret) {
    __m256i keyed = _mm256_xor_si256(value, LOAD(secret));
    __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
    __m256i swapped = _mm256_shuffle_epi32(value, _MM_SHUFFLE(1, 0, 3, 2));
    return _mm256_add_epi64(_mm256_add_epi64(acc, swapped), product);
}

WL_INLINE WL_AVX2 __m256i half_scramble(__m256i acc, const uint8_t *secret) {
    const __m256i prime = _mm256_set1_epi32((int)P32_1);
    __m256i x = _mm256_xor_si256(_mm256_xor_si256(acc, _mm256_srli_epi64(acc, 47)), LOAD(secret));
    __m256i low = _mm256_mul_epu32(x, prime);
    __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), prime);
    return _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
}

/* `how` is a constant at every call: 0 no copy, 1 plain stores, 2 stores past the cache (`target` aligned to 32). */
WL_INLINE WL_AVX2 void blocks_avx2_as(uint64_t acc[8], uint8_t *target, const uint8_t *in, size_t blocks, int how) {
    __m256i one = LOAD(acc), two = LOAD(acc + 4);
    for (size_t block = 0; block < blocks; block++, in += BLOCK) {
        for (int stripe = 0; stripe < STRIPES; stripe++) {
            const uint8_t *at = in + stripe * STRIPE;
            __m256i first = LOAD(at), second = LOAD(at + 32);
            WL_PREFETCH(at + AHEAD);
            if (how != 0) {
                __m256i *to = (__m256i *)(void *)(target + block * BLOCK + (size_t)stripe * STRIPE);
                if (how == 2) {
                    _mm256_stream_si256(to, first);
                    _mm256_stream_si256(to + 1, second);
                } else {
                    _mm256_storeu_si256(to, first);
                    _mm256_storeu_si256(to + 1, second);
                }
            }
            one = half_stripe(one, first, SECRET + 8 * stripe);
            two = half_stripe(two, second, SECRET + 8 * stripe + 32);
        }
        one = half_scramble(one, SECRET + SECRET_BYTES - STRIPE);
        two = half_scramble(two, SECRET + SECRET_BYTES - STRIPE + 32);
    }
    _mm256_storeu_si256((__m256i *)(void *)acc, one);
    _mm256_storeu_si256((__m256i *)(void *)(acc + 4), two);
}

static WL_AVX2 void blocks_avx2(uint64_t acc[8], uint8_t *target, const uint8_t *in, size_t blocks) {
    if (target == NULL)
        blocks_avx2_as(acc, target, in, blocks, 0);
    else if ((uintptr_t)target % 32 != 0)
        blocks_avx2_as(acc, target, in, blocks, 1);
    else {
        blocks_avx2_as(acc, target, in, blocks, 2);
        _mm_sfence();
    }
}
#endif

WL_INLINE uint64_t merged(const uint64_t acc[8], const uint8_t *secret, uint64_t start) {
    for (int pair = 0; pair < 4; pair++)
        start += fold(acc[2 * pair] ^ wl_read64(secret + 16 * pair), acc[2 * pair + 1] ^ wl_read64(secret + 16 * pair + 8));
    return avalanche(start);
}

static wl_u128 of_long(uint8_t *target, const uint8_t *in, size_t n) {
    uint64_t acc[8];
    memcpy(acc, START, sizeof acc);
    size_t blocks = (n - 1) / BLOCK, done = blocks * BLOCK;
#if WL_X86
    if (wl_level > 0)
        blocks_avx2(acc, target, in, blocks);
    else
#endif
        blocks_plain(acc, target, in, blocks);
    if (target != NULL) memcpy(target + done, in + done, n - done);
    stripes_plain(acc, in + done, (n - 1 - done) / STRIPE, SECRET);
    stripes_plain(acc, in + n - STRIPE, 1, SECRET + SECRET_BYTES - STRIPE - 7);
    return (wl_u128){merged(acc, SECRET + 11, n * P64_1),
                     merged(acc, SECRET + SECRET_BYTES - STRIPE - 11, ~(n * P64_2))};
}

void wl_xxh3_128(uint8_t *target, const uint8_t *source, size_t n, uint8_t out[WL_DIGEST_BYTES]) {
    wl_u128 digest;
    if (n > 240)
        digest = of_long(target, source, n);
    else {
        if (target != NULL) memcpy(target, source, n);
        digest = of_short(source, n);
    }
    uint64_t high = swap64(digest.high), low = swap64(digest.low);
    memcpy(out, &high, 8);
    memcpy(out + 8, &low, 8);
}
