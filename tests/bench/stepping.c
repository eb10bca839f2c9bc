/* Steps every row of tables of a SQLite database and reads each of its values: what any reader of
   the file pays to SQLite itself. Prints the CPU seconds it took, then rows, values and a sum.

       stepping DATABASE TABLE...
*/
#include <sqlite3.h>
#include <stdio.h>
#include <sys/resource.h>

static double cpu_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
           1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Something of the value, so that reading it is not left out. */
static unsigned long long read_value(sqlite3_stmt *statement, int column)
{
    const unsigned char *bytes;
    switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
        return (unsigned long long)sqlite3_column_int64(statement, column);
    case SQLITE_FLOAT:
        return (unsigned long long)(long long)sqlite3_column_double(statement, column);
    case SQLITE_TEXT:
        bytes = sqlite3_column_text(statement, column);
        return bytes[0] + (unsigned long long)sqlite3_column_bytes(statement, column);
    case SQLITE_BLOB:
        return (unsigned long long)sqlite3_column_bytes(statement, column);
    default:
        return 0;
    }
}

int main(int count, char **arguments)
{
    sqlite3 *database = NULL;
    unsigned long long rows = 0, values = 0, sum = 0;
    double began = cpu_seconds();

    if (count < 3) {
        fprintf(stderr, "usage: stepping DATABASE TABLE...\n");
        return 2;
    }
    if (sqlite3_open_v2(arguments[1], &database, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", arguments[1], sqlite3_errmsg(database));
        return 1;
    }
    for (int table = 2; table < count; table++) {
        sqlite3_stmt *statement = NULL;
        char *query = sqlite3_mprintf("SELECT * FROM \"%w\"", arguments[table]);
        int state = sqlite3_prepare_v2(database, query, -1, &statement, NULL);
        if (state == SQLITE_OK) {
            int columns = sqlite3_column_count(statement);
            while ((state = sqlite3_step(statement)) == SQLITE_ROW) {
                for (int column = 0; column < columns; column++)
                    sum += read_value(statement, column);
                rows++;
                values += (unsigned long long)columns;
            }
        }
        if (state != SQLITE_DONE) {
            fprintf(stderr, "%s: %s\n", arguments[table], sqlite3_errmsg(database));
            return 1;
        }
        sqlite3_finalize(statement);
        sqlite3_free(query);
    }
    sqlite3_close(database);
    printf("%.6f %llu rows %llu values %llu\n", cpu_seconds() - began, rows, values, sum);
    return 0;
}
