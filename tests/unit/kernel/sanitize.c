/* Every function of the kernel on buffers of exactly the size they are said to have, for AddressSanitizer and UBSan.
 * Ends with 0 and one line where all went well; a sanitizer ends it otherwise. */
#include <stdio.h>
#include <stdlib.h>

#include "kernel.h"

int wl_use(int level);
void wl_leaf_digests(const uint8_t *, const int64_t *, const int64_t *, int64_t, uint8_t *);
void wl_copy_digests(uint8_t *, const uint8_t *, const int64_t *, const int64_t *, int64_t, uint8_t *);
void wl_copy(uint8_t *, const uint8_t *, int64_t);
void wl_differences(const uint8_t *, const uint8_t *, int64_t, int64_t, uint8_t *);
void wl_zeros(const uint8_t *, int64_t, int64_t, uint8_t *);
int64_t wl_granules_encode(const uint8_t *, int64_t, int, uint8_t *);
int wl_granules_decode(const uint8_t *, int64_t, uint8_t *, int64_t);
void wl_planes_split(const uint8_t *, int64_t, uint8_t *, uint8_t *);
void wl_planes_join(const uint8_t *, const uint8_t *, int64_t, uint8_t *);

static uint64_t seed = 1;

static unsigned chance(void) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(seed >> 40);
}

/* `kind`: 0 noise, 1 bf16 near 1, 2 with zero stretches. */
static uint8_t *made(size_t nbytes, int kind) {
    uint8_t *at = malloc(nbytes + 1);
    for (size_t i = 0; i < nbytes; i++) {
        at[i] = (uint8_t)chance();
        if (kind > 0 && i % 2 == 1) at[i] = (uint8_t)((at[i] & 0x80) | 0x3e | (chance() % 64 == 0 ? 0x41 : 0));
        if (kind == 2 && i / 4096 % 2 == 1) at[i] = 0;
    }
    return at;
}

static uint8_t *exact(const uint8_t *from, size_t nbytes) {
    uint8_t *at = malloc(nbytes);
    if (nbytes > 0) memcpy(at, from, nbytes);
    return at;
}

static void must(int holds, const char *what, size_t nbytes) {
    if (holds) return;
    printf("%s at %zu bytes\n", what, nbytes);
    exit(1);
}

static void memory_of(size_t nbytes) {
    uint8_t *whole = made(nbytes, 0), *source = exact(whole, nbytes);
    for (size_t shift = 0; shift < 33; shift += 11) {
        uint8_t *room = malloc(nbytes + shift), *target = room + shift;
        uint8_t one[16], two[16], three[16];
        int64_t offset = 0, size = (int64_t)nbytes;
        wl_leaf_digests(source, &offset, &size, 1, one);
        wl_copy_digests(target, source, &offset, &size, 1, two);
        wl_leaf_digests(target, &offset, &size, 1, three);
        must(memcmp(one, two, 16) == 0 && memcmp(one, three, 16) == 0, "a copy with digests", nbytes);
        memset(room, 0, nbytes + shift);
        wl_copy(target, source, size);
        must(nbytes == 0 || memcmp(target, source, nbytes) == 0, "a copy", nbytes);
        int64_t granule = 1 + (int64_t)(chance() % 700);
        uint8_t *map = malloc((size_t)((size + granule - 1) / granule));
        wl_differences(source, target, size, granule, map);
        wl_zeros(target, size, granule, map);
        free(map);
        free(room);
    }
    free(source);
    free(whole);
}

static void code_of(size_t nbytes, int kind) {
    uint8_t *whole = made(nbytes, kind), *source = exact(whole, nbytes);
    size_t headers = 4 * ((nbytes + 4095) / 4096);
    uint8_t *room = malloc(headers + nbytes), *back = malloc(nbytes);
    int64_t used = wl_granules_encode(source, (int64_t)nbytes, kind > 0, room);
    uint8_t *code = exact(room, (size_t)used);
    must(wl_granules_decode(code, used, back, (int64_t)nbytes) == 0, "a decode", nbytes);
    must(nbytes == 0 || memcmp(back, source, nbytes) == 0, "a round trip", nbytes);
    for (int attack = 0; attack < 40 && used > 0; attack++) {
        uint8_t *wrong = exact(code, (size_t)used);
        for (unsigned flips = 1 + chance() % 3; flips > 0; flips--)
            wrong[chance() % (chance() % 2 && headers > 0 ? headers : (size_t)used)] = (uint8_t)chance();
        wl_granules_decode(wrong, used, back, (int64_t)nbytes);
        int64_t cut = (int64_t)(chance() % (unsigned)used);
        uint8_t *shorter = exact(wrong, (size_t)cut);
        wl_granules_decode(shorter, cut, back, (int64_t)nbytes);
        free(shorter);
        free(wrong);
    }
    int64_t elements = (int64_t)(nbytes / 2);
    uint8_t *exponents = malloc((size_t)elements), *rest = malloc((size_t)elements);
    wl_planes_split(source, elements, exponents, rest);
    wl_planes_join(exponents, rest, elements, back);
    must(elements == 0 || memcmp(back, source, 2 * (size_t)elements) == 0, "planes", nbytes);
    free(exponents);
    free(rest);
    free(code);
    free(room);
    free(back);
    free(source);
    free(whole);
}

int main(void) {
    for (int level = 0; level < 2; level++) {
        wl_use(level);
        for (size_t nbytes = 0; nbytes < 400; nbytes++) memory_of(nbytes);
        for (size_t nbytes = 1000; nbytes < 10000; nbytes += 61) memory_of(nbytes);
        static const size_t sizes[] = {0, 1, 2, 4095, 4096, 4097, 8192, 12290, 20480};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int kind = 0; kind < 3; kind++) code_of(sizes[i], kind);
    }
    puts("clean");
    return 0;
}
