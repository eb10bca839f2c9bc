/* Harness of _rows.c: blocks of rows of a table whose cells are of any kind. */
#define SQLITE_CORE 1
static const int linked = 1;
#define sqlite3_api (&linked)
#include "../../../timeline/sources/decoders/_rows.c"
#include "check.h"

enum { MOST_ROWS = 12, COLUMNS = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static sqlite3 *database;
    static sqlite3_stmt *insert, *select, *forget;
    if (database == NULL) {
        CHECK(sqlite3_open(":memory:", &database) == SQLITE_OK);
        sqlite3_exec(database, "CREATE TABLE t (a, b)", NULL, NULL, NULL);
        sqlite3_prepare_v2(database, "INSERT INTO t VALUES (?, ?)", -1, &insert, NULL);
        sqlite3_prepare_v2(database, "SELECT a, b FROM t", -1, &select, NULL);
        sqlite3_prepare_v2(database, "DELETE FROM t", -1, &forget, NULL);
    }
    Input input = {data, data + size};
    int kind = next_byte(&input) & 1 ? SQLITE_INTEGER : SQLITE_FLOAT, is_one_kind = 1;
    Py_ssize_t rows = next_byte(&input) % MOST_ROWS, most = 1 + next_byte(&input) % 5;
    int64_t number[MOST_ROWS][COLUMNS];
    for (Py_ssize_t row = 0; row < rows; row++) {
        for (int column = 0; column < COLUMNS; column++) {
            uint8_t cell = next_byte(&input);
            number[row][column] = next_number(&input);
            if (cell < 0xF8) {
                sqlite3_bind_int64(insert, column + 1, number[row][column]);
                continue;
            }
            double real = cell == 0xF8 ? 1e300 * 1e300 : 0.5 * (double)number[row][column];
            if (cell < 0xFB)
                sqlite3_bind_double(insert, column + 1, real);
            else if (cell < 0xFD)
                sqlite3_bind_text(insert, column + 1, "12", -1, SQLITE_STATIC);
            else
                sqlite3_bind_null(insert, column + 1);
            is_one_kind = 0;
        }
        sqlite3_step(insert);
        sqlite3_reset(insert);
    }
    int code = SQLITE_ROW;
    Py_ssize_t read = 0, found = most;
    while (code == SQLITE_ROW && found == most) {
        int64_t *cells = malloc((size_t)(COLUMNS * most) * sizeof *cells);
        code = fill(select, kind, most, cells, &found);
        CHECK(0 <= found && found <= most);
        for (Py_ssize_t row = 0; row < found && is_one_kind && kind == SQLITE_INTEGER; row++)
            for (int column = 0; column < COLUMNS; column++)
                CHECK(cells[column * most + row] == number[read + row][column]);
        read += found;
        free(cells);
    }
    CHECK(!is_one_kind || (code == SQLITE_DONE && read == rows));
    sqlite3_reset(select);
    sqlite3_step(forget);
    sqlite3_reset(forget);
    return 0;
}
