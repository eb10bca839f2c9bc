/* Harness of _merging.c: names of owners, few and many, in any order. */
#include "../../../timeline/fitting/_merging.c"
#include "check.h"

enum { MOST = 128, MOST_LEADING = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input = {data, data + size};
    Py_ssize_t rows = next_byte(&input) % MOST;
    int64_t owner[MOST], count[MOST], busy[MOST];
    int32_t name[MOST];
    int64_t last = next_number(&input);
    uint64_t counted = 0, time = 0;
    for (Py_ssize_t row = 0; row < rows; row++) {
        uint8_t step = next_byte(&input);
        if (step > 200)
            last = (int64_t)((uint64_t)last + step % 7);
        if (step == 200)
            last = next_number(&input);
        owner[row] = last;
        int32_t code = next_byte(&input);
        name[row] = code == 255 ? -1 : code;
        count[row] = next_number(&input);
        busy[row] = next_number(&input);
        counted += (uint64_t)count[row], time += (uint64_t)busy[row];
    }
    int64_t made_owner[MOST], made_count[MOST], made_busy[MOST], leading[MOST];
    int32_t made_name[MOST];
    Names all = {owner, count, busy, name, rows};
    Names sums = {made_owner, made_count, made_busy, made_name, 0};
    if (sum_all(&all, &sums) == DONE) {
        CHECK(sums.size <= rows);
        for (Py_ssize_t row = 0; row < sums.size; row++) {
            counted -= (uint64_t)made_count[row], time -= (uint64_t)made_busy[row];
            CHECK(!row || made_owner[row - 1] < made_owner[row] ||
                  (made_owner[row - 1] == made_owner[row] && made_name[row - 1] < made_name[row]));
        }
        CHECK(counted == 0 && time == 0);
    }
    Py_ssize_t most = 1 + next_byte(&input) % MOST_LEADING, length = 0;
    for (Py_ssize_t first = 0; first < rows; first += length) {
        length = run_length(owner, first, rows);
        if (length < 0)
            break;
        Py_ssize_t held = lead(count, busy, first, length, most, leading);
        CHECK(held == (length < most ? length : most));
        for (Py_ssize_t at = 0; at < held; at++) {
            CHECK(first <= leading[at] && leading[at] < first + length);
            CHECK(!at || busy[leading[at - 1]] >= busy[leading[at]]);
        }
    }
    return 0;
}
