//! What can go wrong with the GPU.

/// Why the GPU cannot be used, or no longer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GpuError {
    /// Something that is needed is not there: driver, device, compiler.
    #[error("{0}")]
    Absent(String),
    /// A call of CUDA failed.
    #[error("CUDA error {code} ({name}) while {doing}{}", if self.is_sticky() { ": the context is lost" } else { "" })]
    Cuda {
        /// What was attempted.
        doing: &'static str,
        /// The code of CUDA (`CUresult`).
        code: i32,
        /// Its name and meaning.
        name: String,
    },
    /// The kernels do not compile.
    #[error("the kernels do not compile: {0}")]
    Compile(String),
    /// The kernels give other numbers than the CPU.
    #[error("the self-test failed: {0}")]
    SelfTest(String),
}

impl GpuError {
    /// The context cannot be used any more: every later call would fail too.
    pub fn is_sticky(&self) -> bool {
        // Uncorrectable memory errors and faults of a kernel: illegal address, time-out, assertion,
        // stack, instruction, alignment, address space, program counter, launch failure.
        matches!(self, Self::Cuda { code: 214 | 220 | 700 | 702 | 710 | 714..=719, .. })
    }

    /// The code of CUDA, or zero.
    pub fn code(&self) -> i32 {
        match self {
            Self::Cuda { code, .. } => *code,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_context_is_said() {
        let error = |code| GpuError::Cuda { doing: "launching", code, name: "NAME".to_owned() };
        assert_eq!(error(700).to_string(), "CUDA error 700 (NAME) while launching: the context is lost");
        assert_eq!(error(2).to_string(), "CUDA error 2 (NAME) while launching");
        assert!(error(719).is_sticky() && !error(2).is_sticky());
        assert!(!GpuError::Absent("no driver".into()).is_sticky());
    }
}
