// Every kernel of the registration: one module.
#include "fog.cu"
#include "sog.cu"
#include "cliques.cu"
#include "hypotheses.cu"
#include "choose.cu"
#include "refine.cu"
#include "examine.cu"
#include "frame.cu"
