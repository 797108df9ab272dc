// Every kernel of registration, estimation and matching: one module.
#include "fog.cu"
#include "sog.cu"
#include "bound.cu"
#include "cliques.cu"
#include "hypotheses.cu"
#include "examine.cu"
#include "estimate.cu"
#include "matching.cu"
