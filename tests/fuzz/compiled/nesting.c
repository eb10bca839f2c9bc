/* Harness of _nesting.c: intervals in any order, nested or not, and moments. */
#include "../../../timeline/columns/_nesting.c"
#include "check.h"

enum { MOST = 64 };

/* The last of the first intervals that is open at a moment. */
static int64_t open_at(const Intervals *all, Py_ssize_t count, int64_t moment)
{
    while (count-- && (all->start[count] > moment || all->end[count] <= moment))
        ;
    return count;
}

static void check_what_is_open(const Intervals *all, Input *input)
{
    int64_t around[MOST], moment[MOST], latest[MOST];
    char exceeded[MOST];
    Py_ssize_t open[MOST + 1];
    Moments moments = {moment, next_byte(input) % MOST};
    if (find_around(all, NULL, around, open) == DONE)
        for (Py_ssize_t at = 0; at < all->count; at++)
            CHECK(around[at] == open_at(all, at, all->start[at]));
    if (find_exceeded(all, NULL, exceeded, open) == DONE)
        for (Py_ssize_t at = 0; at < all->count; at++) {
            char wanted = 0;
            for (Py_ssize_t other = at + 1; other < all->count; other++)
                wanted |= all->start[other] < all->end[at] && all->end[other] > all->end[at];
            CHECK(exceeded[at] == wanted);
        }
    for (Py_ssize_t at = 0; at < moments.count; at++)
        moment[at] = next_number(input);
    if (find_latest(all, &moments, latest, open) == DONE)
        for (Py_ssize_t at = 0; at < moments.count; at++)
            CHECK(latest[at] == open_at(all, all->count, moment[at]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input = {data, data + size};
    Py_ssize_t count = next_byte(&input) % MOST;
    int64_t start[MOST], end[MOST], place[MOST], group[MOST];
    char is_short[MOST];
    int is_sorted = next_byte(&input) & 1;
    for (Py_ssize_t at = 0; at < count; at++) {
        int64_t first = next_number(&input), second = next_number(&input);
        if (is_sorted && at && first < start[at - 1])
            first = start[at - 1];
        start[at] = first;
        end[at] = second < first ? first : second;
        place[at] = next_byte(&input) % 3;
        is_short[at] = next_byte(&input) & 1;
    }
    Intervals all = {start, end, count};
    check_what_is_open(&all, &input);
    Py_ssize_t last = -1;
    if (group_all(&all, is_short, place, group, &last) == DONE) {
        CHECK(-1 <= last && last < count);
        int64_t groups = 0;
        for (Py_ssize_t at = 0; at < count; at++) {
            CHECK(0 <= group[at] && group[at] <= groups);
            groups = group[at] == groups ? groups + 1 : groups;
        }
    }
    int64_t row[2 * MOST], begin[2 * MOST], stop[2 * MOST];
    char begins[2 * MOST], ends[2 * MOST];
    Events events = {row, begin, stop, begins, ends, 0, next_number(&input)};
    if (order_all(&all, add_event, &events) == DONE) {
        CHECK(events.count <= 2 * count);
        Py_ssize_t begun = 0, ended = 0;
        for (Py_ssize_t at = 0; at < events.count; at++) {
            CHECK(begins[at] || ends[at]);
            begun += begins[at], ended += ends[at];
        }
        CHECK(begun == count && ended == count);
    }
    return 0;
}
