/* Harness of _wire.c: pieces of any kind and nesting, any runs of texts, rows that lack some. */
#include "../../../timeline/encoders/_wire.c"
#include "check.h"

enum { MOST_PIECES = 12, MOST_ROWS = 6, MOST_BYTES = 80 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input = {data, data + size};
    Py_ssize_t number = next_byte(&input) % MOST_PIECES, count = next_byte(&input) % MOST_ROWS;
    Piece pieces[MOST_PIECES];
    int64_t values[MOST_PIECES][MOST_ROWS];
    Run runs[MOST_PIECES][MOST_ROWS];
    char present[MOST_PIECES][MOST_ROWS], constant[MOST_PIECES][MOST_BYTES];
    Py_ssize_t width = 0, texts = 0, longest = 0;
    for (Py_ssize_t at = 0; at < number; at++) {
        Piece *piece = pieces + at;
        memset(piece, 0, sizeof *piece);
        piece->kind = next_byte(&input) % KINDS;
        piece->inner = piece->kind == MESSAGE ? next_byte(&input) % (number - at) : 0;
        if (piece->kind == VARINT || piece->kind == FIXED64) {
            for (Py_ssize_t row = 0; row < count; row++)
                values[at][row] = next_number(&input);
            piece->bytes = (const char *)values[at];
            piece->size = count * 8;
        } else {
            piece->size = next_byte(&input) % MOST_BYTES;
            memset(constant[at], (int)at, MOST_BYTES);
            piece->bytes = constant[at];
            if (piece->kind == TEXT) {
                for (Py_ssize_t row = 0; row < count; row++) {
                    int64_t start = next_byte(&input) % (piece->size + 1);
                    runs[at][row] = (Run){start, next_byte(&input) % (piece->size - start + 1)};
                }
                piece->runs = (const char *)runs[at];
                CHECK(are_inside(piece, count * (Py_ssize_t)sizeof(Run), count));
            }
        }
        if (next_byte(&input) & 1) {
            for (Py_ssize_t row = 0; row < count; row++)
                present[at][row] = next_byte(&input) & 1;
            piece->present = present[at];
        }
        width += width_of(piece);
        if (piece->kind == TEXT) {
            texts += texts_size(piece, count);
            longest += piece->size;
        }
    }
    if (!are_nested(pieces, number))
        return 0;
    Step steps[MOST_STEPS * MOST_PIECES];
    char *open[MOST_PIECES];
    Plan plan = {steps, 0, 0};
    add_pieces(&plan, pieces, pieces + number, 0);
    CHECK(plan.count <= MOST_STEPS * number);
    char *made = malloc((size_t)(width * count + texts) + FEW), *to = made;
    for (Py_ssize_t row = 0; row < count; row++) {
        char *before = to;
        to = put_row(to, &plan, row, open);
        CHECK(before <= to && to - before <= width + longest);
    }
    free(made);
    return 0;
}
