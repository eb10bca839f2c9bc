/* What harnesses have in common: checks that stop, and columns made of the fuzzer's bytes. */
#ifndef HARNESS_CHECK_H
#define HARNESS_CHECK_H
#include <stdio.h>
#include <stdlib.h>

#define CHECK(holds)                                                                       \
    do {                                                                                   \
        if (!(holds)) {                                                                    \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #holds);     \
            abort();                                                                       \
        }                                                                                  \
    } while (0)

typedef struct {
    const uint8_t *at, *end;
} Input;

static uint8_t next_byte(Input *input) { return input->at < input->end ? *input->at++ : 0; }

/* Numbers near each other and near zero, and extremes. */
static int64_t next_number(Input *input)
{
    static const int64_t extremes[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT32_MAX, UINT32_MAX,
                                       1LL << 53, INT64_MAX - 1, INT64_MAX};
    uint8_t kind = next_byte(input);
    if (kind < 0xF0)
        return kind % 24;
    if (kind < 0xFA)
        return extremes[kind - 0xF0];
    uint64_t number = 0;
    for (int byte = 0; byte < 8; byte++)
        number = number << 8 | next_byte(input);
    return (int64_t)number;
}
#endif
