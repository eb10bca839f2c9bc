/* Harness of _pages.c: pages of a table of whole numbers, of which some bytes may be changed. */
#include "../../../timeline/sources/decoders/_pages.c"
#include "check.h"

enum { PAGE = 512, LEAVES = 3, FIRST_LEAF = 3, PAGES = FIRST_LEAF + LEAVES - 1, WIDTH = 3 };
enum { MOST_IN_LEAF = 8, MOST_CELL = 64, MOST_READ = 8 };

/* The first cell of some is spelled in digits. */
typedef struct {
    int64_t row, cell[WIDTH];
    int is_spelled;
} Row;

static void put_two(uint8_t *at, int number)
{
    at[0] = (uint8_t)(number >> 8);
    at[1] = (uint8_t)number;
}

static uint8_t *put_varint(uint8_t *at, uint64_t number)
{
    uint8_t spelled[10];
    int count = 0;
    if (number >> 56) {
        /* Eight groups of seven bits above the last eight. */
        for (int byte = 0; byte < 8; byte++)
            at[byte] = (uint8_t)((number >> (8 + 7 * (7 - byte)) & 0x7F) | 0x80);
        at[8] = (uint8_t)number;
        return at + 9;
    }
    do
        spelled[count++] = number & 0x7F;
    while (number >>= 7);
    while (count--)
        *at++ = (uint8_t)(spelled[count] | (count ? 0x80 : 0));
    return at;
}

/* The bytes that a number takes, by which its type is told; 0 and 1 take none. */
static int size_of(int64_t number, uint8_t *type)
{
    static const int sizes[] = {1, 2, 3, 4, 6};
    *type = number == 0 ? ZERO : ZERO + 1;
    if (number == 0 || number == 1)
        return 0;
    for (int kind = 0; kind < 5; kind++) {
        int64_t least = INT64_MIN >> (64 - 8 * sizes[kind]);
        *type = (uint8_t)(kind + 1);
        if (number >= least && number <= ~least)
            return sizes[kind];
    }
    *type = 6;
    return 8;
}

static uint8_t *put_row(uint8_t *at, const Row *row)
{
    uint8_t record[MOST_CELL], *value = record + 1 + WIDTH;
    record[0] = 1 + WIDTH;
    for (int column = 0; column < WIDTH; column++) {
        int size = size_of(row->cell[column], &record[1 + column]);
        if (column == 0 && row->is_spelled) {
            size = sprintf((char *)value, "%lld", (long long)row->cell[0]);
            record[1] = (uint8_t)(FIRST_TEXT + 2 * size);
            value += size;
            continue;
        }
        for (int byte = size - 1; byte >= 0; byte--)
            *value++ = (uint8_t)((uint64_t)row->cell[column] >> (8 * byte));
    }
    at = put_varint(at, (uint64_t)(value - record));
    at = put_varint(at, (uint64_t)row->row);
    memcpy(at, record, (size_t)(value - record));
    return at + (value - record);
}

/* Lay out rows in leaves below a root; how many there are. */
static int put_table(Input *input, uint8_t *file, Row *rows)
{
    uint8_t *root = file + PAGE;
    int count = 0;
    root[0] = INTERIOR;
    put_two(root + 3, LEAVES - 1);
    for (int leaf = 0; leaf < LEAVES; leaf++) {
        uint8_t *page = file + (FIRST_LEAF + leaf - 1) * PAGE, cell[MOST_CELL];
        int in_leaf = next_byte(input) % (MOST_IN_LEAF + 1), place = PAGE;
        page[0] = LEAF;
        put_two(page + 3, in_leaf);
        for (int number = 0; number < in_leaf; number++) {
            Row *row = &rows[count];
            row->row = (count ? rows[count - 1].row : -3) + 1 + next_byte(input);
            row->is_spelled = next_byte(input) % 4 == 0;
            for (int column = 0; column < WIDTH; column++)
                row->cell[column] = next_number(input);
            int size = (int)(put_row(cell, row) - cell);
            place -= size;
            memcpy(page + place, cell, (size_t)size);
            put_two(page + PAGE_HEADER + 2 * number, place);
            count++;
        }
        if (leaf == LEAVES - 1) {
            root[LAST_CHILD + 3] = FIRST_LEAF + LEAVES - 1;
        } else {
            int at = PAGE - 5 * (leaf + 1);
            root[at + 3] = (uint8_t)(FIRST_LEAF + leaf);
            put_two(root + INTERIOR_CELLS + 2 * leaf, at);
        }
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input = {data, data + size};
    Row rows[LEAVES * MOST_IN_LEAF];
    uint8_t *file = calloc(PAGES, PAGE);
    int count = put_table(&input, file, rows), changes = next_byte(&input) % 4;
    for (int change = 0; change < changes; change++) {
        int at = (next_byte(&input) << 8 | next_byte(&input)) % (PAGES * PAGE);
        file[at] = next_byte(&input);
    }
    Table table = {0};
    table.bytes = file;
    table.window_bytes = PAGES * PAGE;
    table.page_bytes = table.usable_bytes = PAGE;
    table.pages = PAGES;
    table.sought = 2;
    table.width = table.wanted = WIDTH;
    table.reals = next_byte(&input) == 1;
    table.row_place = UNWANTED;
    for (int column = 0; column < WIDTH; column++) {
        int is_text_too = column == 0 || next_byte(&input) & 1;
        table.column[column] = (Column){column, is_text_too ? AS_TEXT_TOO : AS_NUMBER, -1};
    }
    Py_ssize_t most = 1 + next_byte(&input) % MOST_READ, found = most;
    int ended = FULL, read = 0;
    while (ended == FULL) {
        int64_t *cells = malloc((size_t)(WIDTH * most) * sizeof *cells);
        found = 0;
        ended = fill(&table, most, cells, &found);
        CHECK(0 <= found && found <= most);
        for (Py_ssize_t row = 0; row < found && !changes && !table.reals; row++)
            for (int column = 0; column < WIDTH; column++)
                CHECK(cells[column * most + row] == rows[read + row].cell[column]);
        read += (int)found;
        free(cells);
    }
    int is_odd = 0; /* texts are no reals */
    for (int row = 0; row < count && table.reals; row++)
        is_odd |= rows[row].is_spelled;
    CHECK(changes || (is_odd ? ended == ODD : ended == DONE && read == count));
    CHECK(ended != AWAY || changes);
    for (int depth = 0; depth < DEEPEST; depth++)
        free(table.branch[depth].page);
    free(file);
    return 0;
}
