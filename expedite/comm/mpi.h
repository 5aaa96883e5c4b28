// MPI's C interface, without the C++ bindings that some implementations still bring along.
#pragma once

// NOLINTBEGIN: names that the implementations define
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
// NOLINTEND
#include <mpi.h>
