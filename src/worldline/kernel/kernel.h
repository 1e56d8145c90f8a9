/* The optional C kernel: what reads and moves session bytes at the speed of memory.
 *
 * Plain C99 and no Python: the functions are called through ctypes, which lets other threads run meanwhile. Every
 * function gives the same bytes as `worldline.kernel.plain`. A caller passes addresses that it keeps alive and has
 * checked; no function here reads or writes outside the lengths it is given, whatever the bytes are.
 */
#ifndef WORLDLINE_KERNEL_H
#define WORLDLINE_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WL_ABI 1
#define WL_DIGEST_BYTES 16
#define WL_GRANULE_BYTES 4096

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define WL_X86 1
#include <immintrin.h>
#define WL_AVX2 __attribute__((target("avx2")))
#else
#define WL_X86 0
#endif

#if defined(__GNUC__) || defined(__clang__)
#define WL_API __attribute__((visibility("default")))
#define WL_INLINE static inline __attribute__((always_inline))
#define WL_PREFETCH(address) __builtin_prefetch((address), 0, 3)
#else
#define WL_API
#define WL_INLINE static inline
#define WL_PREFETCH(address) ((void)(address))
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Worldline's formats are little-endian; big-endian machines use the pure fallback"
#endif

typedef struct {
    uint64_t low, high;
} wl_u128;

WL_INLINE uint64_t wl_read64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

WL_INLINE uint32_t wl_read32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

/* 0: portable C. 1: AVX2. The best that this machine has, unless wl_use lowered it. */
extern int wl_level;

/* XXH3-128 with seed 0 of `nbytes` at `source`, canonical order. A `target` that is not NULL gets a copy of them, by
 * stores that leave the cache alone where its alignment allows. */
void wl_xxh3_128(uint8_t *target, const uint8_t *source, size_t nbytes, uint8_t out[WL_DIGEST_BYTES]);

void wl_copy_once(uint8_t *target, const uint8_t *source, size_t nbytes);
int wl_is_zero(const uint8_t *at, size_t nbytes);

#endif
