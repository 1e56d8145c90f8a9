/* The granule code of docs/wire.md: zero granules cost four bytes, bf16 granules are kept as 12 bits an element.
 *
 * A stretch is cut into granules of 4096 bytes, the last one shorter. First a header of four bytes for each granule,
 *
 *     0     kind: 0 zero, 1 raw, 2 window
 *     1     window: the lowest exponent; else 0
 *     2-3   window: number of escapes; else 0
 *
 * then what each needs, in order: nothing; its bytes; or, for 2048 elements of bf16, 2048 bytes of sign and mantissa,
 * 1024 bytes of codes (the earlier element in the low half) and the exponents of the escapes in order. Code c below 15
 * is exponent `lowest + c` modulo 256, code 15 an escape. Every bit pattern survives.
 */
#include "kernel.h"

enum { ZERO = 0, RAW = 1, WINDOW = 2, HEADER = 4, ELEMENTS = WL_GRANULE_BYTES / 2, CODES = ELEMENTS / 2 };
enum { WIDTH = 15, SAMPLE_EVERY = 16, ESCAPES_MAX = 512 };

WL_INLINE unsigned exponent_of(const uint8_t *element) {
    return ((unsigned)element[1] << 1 & 0xff) | element[0] >> 7;
}

/* The window of 15 exponents that holds most of every 16th element's; of equal ones the lowest. */
static unsigned lowest_exponent(const uint8_t *in) {
    uint16_t seen[256 + WIDTH];
    memset(seen, 0, sizeof seen);
    for (int at = 0; at < ELEMENTS; at += SAMPLE_EVERY) seen[exponent_of(in + 2 * at)]++;
    unsigned inside = 0, most, lowest = 0;
    for (int e = 0; e < WIDTH; e++) inside += seen[e];
    most = inside;
    for (unsigned first = 1; first + WIDTH <= 256; first++) {
        inside = inside + seen[first + WIDTH - 1] - seen[first - 1];
        if (inside > most) most = inside, lowest = first;
    }
    return lowest;
}

/* The number of escapes, or -1 where they are too many to be worth it. */
static int encode_plain(const uint8_t *in, unsigned lowest, uint8_t *rest, uint8_t *codes, uint8_t *escaped) {
    int escapes = 0;
    for (int at = 0; at < ELEMENTS; at++, in += 2) {
        unsigned exponent = exponent_of(in), code = (exponent - lowest) & 0xff;
        rest[at] = (uint8_t)((in[0] & 0x7f) | (in[1] & 0x80));
        if (code >= WIDTH) {
            if (escapes == ESCAPES_MAX) return -1;
            escaped[escapes++] = (uint8_t)exponent;
            code = WIDTH;
        }
        if (at % 2 == 0)
            codes[at / 2] = (uint8_t)code;
        else
            codes[at / 2] = (uint8_t)(codes[at / 2] | code << 4);
    }
    return escapes;
}

/* Writes `out`; the escapes used, or -1 where they are not exactly `escapes`. */
static int decode_plain(const uint8_t *rest, const uint8_t *codes, const uint8_t *escaped, int escapes, unsigned lowest,
                        uint8_t *out) {
    int used = 0;
    for (int at = 0; at < ELEMENTS; at++, out += 2) {
        unsigned code = at % 2 == 0 ? codes[at / 2] & 15 : codes[at / 2] >> 4, exponent = (lowest + code) & 0xff;
        if (code == WIDTH) {
            if (used == escapes) return -1;
            exponent = escaped[used++];
        }
        out[0] = (uint8_t)((rest[at] & 0x7f) | (exponent & 1) << 7);
        out[1] = (uint8_t)((rest[at] & 0x80) | exponent >> 1);
    }
    return used == escapes ? used : -1;
}

#if WL_X86
#define LOAD(at) _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define STORE(at, value) _mm256_storeu_si256((__m256i *)(void *)(at), (value))

static WL_AVX2 int encode_avx2(const uint8_t *in, unsigned lowest, uint8_t *rest, uint8_t *codes, uint8_t *escaped) {
    const __m256i byte = _mm256_set1_epi16(0xff), low = _mm256_set1_epi16(0x7f), sign = _mm256_set1_epi16(0x80);
    const __m256i base = _mm256_set1_epi8((char)lowest), width = _mm256_set1_epi8(WIDTH);
    const __m256i pairs = _mm256_set1_epi16(0x1001);
    int escapes = 0;
    for (int at = 0; at < ELEMENTS; at += 32) {
        __m256i a = LOAD(in + 2 * at), b = LOAD(in + 2 * at + 32);
        __m256i ea = _mm256_and_si256(_mm256_srli_epi16(a, 7), byte), eb = _mm256_and_si256(_mm256_srli_epi16(b, 7), byte);
        __m256i ra = _mm256_or_si256(_mm256_and_si256(a, low), _mm256_and_si256(_mm256_srli_epi16(a, 8), sign));
        __m256i rb = _mm256_or_si256(_mm256_and_si256(b, low), _mm256_and_si256(_mm256_srli_epi16(b, 8), sign));
        __m256i exponents = _mm256_permute4x64_epi64(_mm256_packus_epi16(ea, eb), 0xd8);
        STORE(rest + at, _mm256_permute4x64_epi64(_mm256_packus_epi16(ra, rb), 0xd8));
        __m256i code = _mm256_min_epu8(_mm256_sub_epi8(exponents, base), width);
        __m256i both = _mm256_maddubs_epi16(code, pairs);
        __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(both, both), 0xd8);
        _mm_storeu_si128((__m128i *)(void *)(codes + at / 2), _mm256_castsi256_si128(packed));
        uint32_t out_of = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(code, width));
        if (out_of != 0) {
            if (escapes + __builtin_popcount(out_of) > ESCAPES_MAX) return -1;
            uint8_t each[32];
            STORE(each, exponents);
            for (; out_of != 0; out_of &= out_of - 1) escaped[escapes++] = each[__builtin_ctz(out_of)];
        }
    }
    return escapes;
}

static WL_AVX2 int decode_avx2(const uint8_t *rest, const uint8_t *codes, const uint8_t *escaped, int escapes,
                               unsigned lowest, uint8_t *out) {
    const __m256i low = _mm256_set1_epi16(0x7f), sign = _mm256_set1_epi16((short)0x8000);
    const __m256i base = _mm256_set1_epi8((char)lowest), width = _mm256_set1_epi8(WIDTH);
    const __m128i half = _mm_set1_epi8(15);
    int used = 0;
    for (int at = 0; at < ELEMENTS; at += 32) {
        __m128i packed = _mm_loadu_si128((const __m128i *)(const void *)(codes + at / 2));
        __m128i even = _mm_and_si128(packed, half), odd = _mm_and_si128(_mm_srli_epi16(packed, 4), half);
        __m256i code = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
        __m256i exponents = _mm256_add_epi8(code, base), bytes = LOAD(rest + at);
        uint32_t out_of = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(code, width));
        if (out_of != 0) {
            if (used + __builtin_popcount(out_of) > escapes) return -1;
            uint8_t each[32];
            STORE(each, exponents);
            for (; out_of != 0; out_of &= out_of - 1) each[__builtin_ctz(out_of)] = escaped[used++];
            exponents = LOAD(each);
        }
        for (int side = 0; side < 2; side++) {
            __m256i e = _mm256_cvtepu8_epi16(side ? _mm256_extracti128_si256(exponents, 1) : _mm256_castsi256_si128(exponents));
            __m256i r = _mm256_cvtepu8_epi16(side ? _mm256_extracti128_si256(bytes, 1) : _mm256_castsi256_si128(bytes));
            __m256i value = _mm256_or_si256(_mm256_and_si256(r, low), _mm256_slli_epi16(e, 7));
            value = _mm256_or_si256(value, _mm256_and_si256(_mm256_slli_epi16(r, 8), sign));
            STORE(out + 2 * at + 32 * side, value);
        }
    }
    return used == escapes ? used : -1;
}
#endif

static int encode_window(const uint8_t *in, unsigned lowest, uint8_t *at) {
    uint8_t *codes = at + ELEMENTS, *escaped = codes + CODES;
#if WL_X86
    if (wl_level > 0) return encode_avx2(in, lowest, at, codes, escaped);
#endif
    return encode_plain(in, lowest, at, codes, escaped);
}

static int decode_window(const uint8_t *at, int escapes, unsigned lowest, uint8_t *out) {
    const uint8_t *codes = at + ELEMENTS, *escaped = codes + CODES;
#if WL_X86
    if (wl_level > 0) return decode_avx2(at, codes, escaped, escapes, lowest, out);
#endif
    return decode_plain(at, codes, escaped, escapes, lowest, out);
}

/* `out` has room for a header a granule and for `nbytes`. The bytes written. With `window` not 0 the stretch is taken
 * as bf16. */
WL_API int64_t wl_granules_encode(const uint8_t *in, int64_t nbytes, int window, uint8_t *out) {
    int64_t count = (nbytes + WL_GRANULE_BYTES - 1) / WL_GRANULE_BYTES;
    uint8_t *header = out, *at = out + HEADER * count;
    for (int64_t done = 0; done < nbytes; done += WL_GRANULE_BYTES, header += HEADER) {
        size_t size = nbytes - done < WL_GRANULE_BYTES ? (size_t)(nbytes - done) : WL_GRANULE_BYTES;
        const uint8_t *granule = in + done;
        memset(header, 0, HEADER);
        if (wl_is_zero(granule, size)) continue;
        if (window != 0 && size == WL_GRANULE_BYTES) {
            unsigned lowest = lowest_exponent(granule);
            int escapes = encode_window(granule, lowest, at);
            if (escapes >= 0) {
                header[0] = WINDOW;
                header[1] = (uint8_t)lowest;
                header[2] = (uint8_t)(escapes & 0xff);
                header[3] = (uint8_t)(escapes >> 8);
                at += ELEMENTS + CODES + escapes;
                continue;
            }
        }
        header[0] = RAW;
        memcpy(at, granule, size);
        at += size;
    }
    return at - out;
}

/* What the granule of `header` takes; -1 where the header is none. */
static int64_t taken(const uint8_t *header, size_t size) {
    int escapes = header[2] | header[3] << 8;
    if (header[0] == WINDOW)
        return size == WL_GRANULE_BYTES && escapes <= ESCAPES_MAX ? ELEMENTS + CODES + escapes : -1;
    if (header[1] != 0 || escapes != 0 || header[0] > RAW) return -1;
    return header[0] == RAW ? (int64_t)size : 0;
}

/* 0, or -1 where `in` is no encoding of exactly `nbytes`. Then `out` may have been written, never anything beyond. */
WL_API int wl_granules_decode(const uint8_t *in, int64_t encoded, uint8_t *out, int64_t nbytes) {
    int64_t count = (nbytes + WL_GRANULE_BYTES - 1) / WL_GRANULE_BYTES, left = encoded - HEADER * count;
    if (left < 0) return -1;
    const uint8_t *header = in, *at = in + HEADER * count;
    for (int64_t done = 0; done < nbytes; done += WL_GRANULE_BYTES, header += HEADER) {
        size_t size = nbytes - done < WL_GRANULE_BYTES ? (size_t)(nbytes - done) : WL_GRANULE_BYTES;
        int64_t needs = taken(header, size);
        if (needs < 0 || needs > left) return -1;
        if (header[0] == ZERO)
            memset(out + done, 0, size);
        else if (header[0] == RAW)
            memcpy(out + done, at, size);
        else if (decode_window(at, header[2] | header[3] << 8, header[1], out + done) < 0)
            return -1;
        at += needs;
        left -= needs;
    }
    return left == 0 ? 0 : -1;
}

/* The exponents of `count` bf16 elements into one plane, sign and mantissa into another. */
WL_API void wl_planes_split(const uint8_t *in, int64_t count, uint8_t *exponents, uint8_t *rest) {
    for (int64_t at = 0; at < count; at++, in += 2) {
        exponents[at] = (uint8_t)exponent_of(in);
        rest[at] = (uint8_t)((in[0] & 0x7f) | (in[1] & 0x80));
    }
}

WL_API void wl_planes_join(const uint8_t *exponents, const uint8_t *rest, int64_t count, uint8_t *out) {
    for (int64_t at = 0; at < count; at++, out += 2) {
        out[0] = (uint8_t)((rest[at] & 0x7f) | (exponents[at] & 1) << 7);
        out[1] = (uint8_t)((rest[at] & 0x80) | exponents[at] >> 1);
    }
}
