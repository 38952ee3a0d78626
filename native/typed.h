/* For files of one floating type, T. */
#pragma once
#include "base.h"
#include <math.h>

#define T KIND
#define EXP(x) _Generic((T)0, float: expf, double: exp)(x)
#define LOG(x) _Generic((T)0, float: logf, double: log)(x)
