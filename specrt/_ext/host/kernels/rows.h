/* Reading a matrix as its file has it. */
#include "linear.h"

/* Columns first .. first + count of one row, dequantised: scale * code, then + minimum. first is a
 * whole number of blocks. With flush MXFP4's scales below 2^-30 count as zero, as in products. */
void KERNEL(read_row)(const struct matrix *matrix, int row, int first, int count, int flush,
                      float *out);

/* The row of a token times scale; NaN if that is no row. */
void KERNEL(embedded)(const struct matrix *matrix, int token, float scale, float *out);

#define MXFP4_SMALLEST 0x3080 /* 2^-30 as bf16 */
