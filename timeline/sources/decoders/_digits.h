/* Numbers that are spelled in decimal digits, eight at once. */
#include <stdint.h>
#include <string.h>

static inline uint64_t eight_at(const char *text)
{
    uint64_t word;
    memcpy(&word, text, sizeof word);
    return word;
}

/* Whether eight bytes are digits: their upper halves are, also where the lower ones are raised. */
static inline int are_digits(const char *at)
{
    const uint64_t upper = UINT64_C(0xF0F0F0F0F0F0F0F0), zeros = UINT64_C(0x3030303030303030);
    uint64_t word = eight_at(at);
    return (word & upper) == zeros && ((word + UINT64_C(0x0606060606060606)) & upper) == zeros;
}

/* The number that eight digits spell: pairs, then fours, then all are put together at once. */
static inline int64_t eight_digits(const char *at)
{
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t one_of_four = UINT64_C(0x000000FF000000FF);
    uint64_t word = eight_at(at) - UINT64_C(0x3030303030303030);
    word = 10 * word + (word >> 8);
    word = (word & one_of_four) * (UINT64_C(1000000) << 32 | 100) +
           ((word >> 16) & one_of_four) * (UINT64_C(10000) << 32 | 1);
    return (int64_t)(word >> 32);
#else
    int64_t number = 0;
    for (int place = 0; place < 8; place++)
        number = 10 * number + (at[place] - '0');
    return number;
#endif
}
