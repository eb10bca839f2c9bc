/* Harness of _intervals.c: intervals of two sides, against each moment that they cover. */
#include "../../../timeline/columns/_intervals.c"
#include "check.h"

enum { MOST = 24, MOMENTS = 64 };

typedef struct {
    int64_t start[MOST], end[MOST];
} Side;

/* Intervals in order of start within the moments, disjoint and not empty if these have to be. */
static Intervals read_side(Input *input, Side *side, int is_set)
{
    Py_ssize_t count = next_byte(input) % MOST, made = 0;
    int64_t at = 0;
    for (Py_ssize_t number = 0; number < count; number++) {
        int64_t start = at + next_byte(input) % 4, end = start + next_byte(input) % 6;
        if (is_set)
            end += end == start;
        if (end > MOMENTS)
            break;
        side->start[made] = start;
        side->end[made++] = end;
        at = is_set ? end + 1 : start;
    }
    return (Intervals){side->start, side->end, made};
}

static int covers(const Intervals *all, int64_t moment)
{
    for (Py_ssize_t at = 0; at < all->count; at++)
        if (all->start[at] <= moment && moment < all->end[at])
            return 1;
    return 0;
}

static void check_made(Make *make, const Intervals *left, const Intervals *right)
{
    Made counted = {NULL, NULL, 0};
    CHECK(make(left, right, &counted));
    int64_t *start = malloc(sizeof *start * (size_t)counted.count);
    int64_t *end = malloc(sizeof *end * (size_t)counted.count);
    Made made = {start, end, 0};
    if (counted.count)
        make(left, right, &made);
    CHECK(made.count == counted.count);
    Intervals found = {start, end, made.count};
    for (Py_ssize_t at = 0; at < made.count; at++)
        CHECK(start[at] < end[at] && (!at || end[at - 1] < start[at]));
    for (int64_t moment = 0; moment < MOMENTS; moment++) {
        int on_left = covers(left, moment), on_right = covers(right, moment);
        int wanted = make == merge ? on_left || on_right : on_left && !on_right;
        CHECK(covers(&found, moment) == wanted);
    }
    free(start);
    free(end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input = {data, data + size};
    Side left, right;
    int subtracts = next_byte(&input) & 1;
    Intervals lefts = read_side(&input, &left, subtracts);
    Intervals rights = read_side(&input, &right, subtracts);
    check_made(subtracts ? take_away : merge, &lefts, &rights);
    /* In any order nothing is read that is not there. */
    for (Py_ssize_t at = 0; at < lefts.count; at++) {
        left.start[at] = next_number(&input);
        left.end[at] = next_number(&input);
    }
    Made counted = {NULL, NULL, 0};
    merge(&lefts, &rights, &counted);
    take_away(&lefts, &rights, &counted);
    return 0;
}
