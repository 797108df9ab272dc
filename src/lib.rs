//! flashreg
