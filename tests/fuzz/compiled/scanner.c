/* Harness of _scanner.c: blocks of text, in several pieces, by scanners of all kinds. */
#include "../../../timeline/sources/decoders/_scanner.c"
#include "check.h"

static const char *const KEYS[] = {"\"Model Id\"", "\"Task Type\"", "\"a\"", "\"value\"", "\"\""};

static void start(Scanner *scanner, uint8_t kind)
{
    memset(scanner, 0, sizeof *scanner);
    int keys = kind % 6;
    for (int place = 0; place < keys; place++) {
        int32_t code;
        CHECK(code_of(&scanner->keys, KEYS[place], strlen(KEYS[place]), &code) == READ);
    }
    scanner->asked = scanner->keys.count;
    scanner->first_loose = keys / 2;
    scanner->first_raw = keys - (keys > 3);
    scanner->with_counters = kind >> 3 & 1;
    scanner->with_instants = kind >> 4 & 1;
    scanner->args_are_whole = keys == 1 && kind >> 5 & 1;
    CHECK(widen(&scanner->keys) == READ);
    CHECK(code_of(&scanner->texts, "0", 1, &scanner->zero) == READ);
    CHECK(code_of(&scanner->texts, "\"\"", 2, &scanner->empty) == READ);
}

static void finish(Scanner *scanner)
{
    release(&scanner->texts);
    release(&scanner->keys);
    release(&scanner->groups);
    void *columns[] = {
        scanner->events.phase,    scanner->events.group, scanner->events.name,
        scanner->events.category, scanner->events.start, scanner->events.end,
        scanner->args.row,        scanner->args.key,     scanner->args.kind,
        scanner->args.value,      scanner->metadata.bytes, scanner->odd_times.bytes,
        scanner->codes.bytes,     scanner->spelling.bytes,
    };
    for (size_t column = 0; column < sizeof columns / sizeof *columns; column++)
        free(columns[column]);
}

/* All codes and places name what is there. */
static void check(const Scanner *scanner, Py_ssize_t used, Py_ssize_t length)
{
    CHECK(0 <= used && used <= length);
    const Events *events = &scanner->events;
    for (size_t row = 0; row < events->count; row++) {
        CHECK(events->group[row] < scanner->groups.count);
        CHECK(events->name[row] < scanner->texts.count);
        CHECK(events->category[row] < scanner->texts.count);
    }
    for (size_t at = 0; at < scanner->args.count; at++) {
        int32_t row = scanner->args.row[at];
        CHECK(0 <= row && (size_t)row < events->count);
        CHECK(!at || scanner->args.row[at - 1] <= row);
        CHECK(scanner->args.kind[at] <= IS_REAL);
        if (scanner->args.kind[at] == IS_TEXT)
            CHECK(0 <= scanner->args.value[at] && scanner->args.value[at] < scanner->texts.count);
    }
    const int64_t *place = (const int64_t *)scanner->metadata.bytes;
    for (size_t at = 0; at < scanner->metadata.used / sizeof *place; at += 2)
        CHECK(0 <= place[at] && place[at] <= place[at + 1] && place[at + 1] <= used);
    place = (const int64_t *)scanner->odd_times.bytes;
    for (size_t at = 0; at < scanner->odd_times.used / sizeof *place; at += 5)
        for (int side = 1; side < 5; side += 2)
            CHECK(0 <= place[at + side] && place[at + side] <= place[at + side + 1] &&
                  place[at + side + 1] <= length);
    CHECK(0 <= scanner->others && 0 <= scanner->unread);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Scanner scanner;
    if (size < 2)
        return 0;
    start(&scanner, data[0]);
    size_t cut = 2 + (size - 2) * data[1] / 255;
    const uint8_t *ends[] = {data + 2, data + cut, data + size};
    for (int piece = 0; piece < 2; piece++) {
        Py_ssize_t length = ends[piece + 1] - ends[piece];
        /* A copy of this length, so that nothing behind it is read unseen. */
        char *text = malloc((size_t)length + !length);
        memcpy(text, ends[piece], (size_t)length);
        Py_ssize_t used = scan_text(&scanner, text, length);
        if (used >= 0)
            check(&scanner, used, length);
        /* What a text gave is let go of, or held before what the next one gives. */
        if (data[0] >> 6 & 1)
            scanner.events.count = scanner.events_before, scanner.args.count = scanner.args_before;
        free(text);
    }
    finish(&scanner);
    return 0;
}
